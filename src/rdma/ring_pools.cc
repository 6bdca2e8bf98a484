#include "rdma/ring_pools.h"

namespace softhca::rdma {

void RingPools::update() { scarce_ = requests.crowded() || budget.left() <= budget.total() / 2; }

}  // namespace softhca::rdma
