#include "sdxi/function_stop.h"

#include "sdxi/budget.h"

namespace softhca::sdxi {

std::int64_t FunctionStop::go_on() {
  constexpr auto kMost = 64 * kContextCost;
  std::int64_t used = 0;
  while (used < kMost && has_visits()) {
    const auto number = static_cast<ContextNumber>(progress_->next++);
    if (number > parts_.registers.max_cxt()) {
      progress_->next = static_cast<std::uint32_t>(parts_.contexts.size());
      break;
    }
    const auto stopped = parts_.stops.stop(number, StopCause::kFunction, progress_->hard);
    used += kContextCost + remote_cost();
    if (!stopped) {
      parts_.halt.halt(stopped.error(), number);  // K9b
      break;
    }
  }
  return used;
}

}  // namespace softhca::sdxi
