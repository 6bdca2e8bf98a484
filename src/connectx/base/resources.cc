#include "connectx/base/resources.h"

namespace softhca::connectx {

Resources::Resources(const Limits& limits, const Model& model, bool shared_doorbells)
    : user_contexts_(limits),
      pds_(1, Limits::count(limits.log_max_pd)),
      uars_(model.first_uar, model.uar_count, shared_doorbells),
      transport_domains_(1, Limits::count(limits.log_max_transport_domain)),
      xrcds_(1, Limits::count(limits.log_max_xrcd)),
      q_counter_ids_(1, limits.max_qp_cnt),
      queue_numbers_(kFirstQueue, queue_numbers(limits)),
      srq_numbers_(1, Limits::count(limits.log_max_srq) + Limits::count(limits.log_max_rmp)),
      q_counters_(limits.max_qp_cnt + 1) {}

std::uint32_t Resources::queue_numbers(const Limits& limits) {
  return Limits::count(limits.log_max_qp) + Limits::count(limits.log_max_sq) +
         Limits::count(limits.log_max_rq) + kMaxDcts;
}

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
