#include "sdxi/function_stop.h"

#include "sdxi/budget.h"

namespace softhca::sdxi {

void FunctionStop::go_on() {
  for (std::int64_t budget = 64 * kContextCost; budget > 0 && has_visits();
       budget -= kContextCost + remote_cost()) {
    const auto number = static_cast<ContextNumber>(progress_->next++);
    if (number > parts_.registers.max_cxt()) {
      progress_->next = static_cast<std::uint32_t>(parts_.contexts.size());
      return;
    }
    const auto stopped = parts_.stops.stop(number, StopCause::kFunction, progress_->hard);
    if (!stopped) return parts_.halt.halt(stopped.error(), number);  // K9b
  }
}

}  // namespace softhca::sdxi
