#include "connectx/base/resources.h"

#include "connectx/base/bar_layout.h"

namespace softhca::connectx {

Resources::Resources()
    : pds_(1, (1u << kLogMaxPd) - 1),
      uars_(kFirstUar, kUarCount),
      transport_domains_(1, (1u << kLogMaxTransportDomain) - 1),
      xrcds_(1, (1u << kLogMaxXrcd) - 1),
      q_counter_ids_(1, kMaxQCounters),
      queue_numbers_(kFirstQueue, (1u << kLogMaxQueue) - kFirstQueue),
      srq_numbers_(1, (1u << kLogMaxSrq) - 1) {}

std::optional<CounterSetId> Resources::allocate_q_counter() {
  const auto id = q_counter_ids_.allocate();
  if (id) q_counters_[id->value()] = {};
  return id;
}

bool Resources::free_q_counter(CounterSetId id) {
  if (!q_counter_ids_.contains(id)) return false;
  q_counter_ids_.free(id);
  return true;
}

QCounters* Resources::q_counter(CounterSetId id) {
  return q_counter_ids_.contains(id) ? &q_counters_[id.value()] : nullptr;
}

}  // namespace softhca::connectx
