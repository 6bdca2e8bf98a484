#include "sdxi/function_stop.h"

#include "sdxi/budget.h"

namespace softhca::sdxi {

std::int64_t FunctionStop::go_on() {
  constexpr auto kMost = 64 * kContextCost;
  constexpr std::int64_t kSkipCost = 64;
  std::int64_t used = 0;
  while (used < kMost && has_visits()) {
    const auto number = static_cast<ContextNumber>(progress_->next++);
    // Above the limit, only contexts that ran before it was lowered have anything to stop.
    if (number > parts_.registers.max_cxt() && parts_.contexts.find_active(number) == nullptr) {
      used += kSkipCost;
      continue;
    }
    (void)parts_.stops.stop(number, StopCause::kFunction, progress_->hard);
    used += kContextCost + remote_cost();
  }
  return used;
}

}  // namespace softhca::sdxi
