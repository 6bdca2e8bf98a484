#include "wire/flow.h"

#include <atomic>

namespace softhca::wire {

FlowId new_flow() {
  static std::atomic<FlowId> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace softhca::wire
