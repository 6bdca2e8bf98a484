#include "connectx/objects.h"

#include "connectx/base/resources.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/network_port.h"
#include "connectx/port/port_registers.h"
#include "connectx/port/vport.h"
#include "connectx/qp/rdma.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/user_memory.h"

namespace softhca::connectx {

Objects::Objects() = default;
Objects::~Objects() = default;

bool Objects::dismantle(util::WorkBudget& work) {
  // The order is that of uses: queues use CQs, keys and counters; CQs use EQs; all of them use the
  // numbers in `resources`.
  return ethernet->dismantle(work) && rdma->dismantle(work) && memory_keys->dismantle(work) &&
         completion_queues->dismantle(work) && user_memories->dismantle(work);
}

}  // namespace softhca::connectx
