#include "connectx/base/resources.h"

#include <algorithm>

#include "wire/ids.h"

namespace softhca::connectx {
namespace {

/// At most `most` of the numbers [first, end) that `given` has.
QueueNumbers among(const QueueNumbers& given, std::uint32_t first, std::uint32_t most) {
  constexpr std::uint64_t kEnd = wire::kMulticastQpn.value();  // not a queue's number (IBTA 10.5)
  const auto begin = std::max(given.first, first);
  const auto end = std::min(std::uint64_t{given.first} + given.count, kEnd);
  const auto count = begin < end ? end - begin : 0;
  return {.first = begin,
          .count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, most))};
}

/// The logarithm of a limit of at most `count` objects.
std::uint32_t lower(std::uint32_t log, std::uint32_t count) {
  while (log != 0 && Limits::count(log) > count) --log;
  return log;
}

}  // namespace

Resources::Resources(const Limits& limits, const Model& model, bool shared_doorbells,
                     const QueueNumbers& given)
    : user_contexts_(limits),
      pds_(1, Limits::count(limits.log_max_pd)),
      uars_(model.first_uar, model.uar_count, shared_doorbells),
      transport_domains_(1, Limits::count(limits.log_max_transport_domain)),
      xrcds_(1, Limits::count(limits.log_max_xrcd)),
      q_counter_ids_(1, limits.max_qp_cnt),
      first_queue_(queue_numbers(limits, given).first),
      first_srq_(srq_numbers(limits, given).first),
      queue_numbers_(first_queue_, queue_numbers(limits, given).count),
      srq_numbers_(first_srq_, srq_numbers(limits, given).count),
      q_counters_(limits.max_qp_cnt + 1) {}

QueueNumbers Resources::queue_numbers(const Limits& limits, const QueueNumbers& given) {
  return among(given, kFirstQueue,
               Limits::count(limits.log_max_qp) + Limits::count(limits.log_max_sq) +
                   Limits::count(limits.log_max_rq) + kMaxDcts);
}

QueueNumbers Resources::srq_numbers(const Limits& limits, const QueueNumbers& given) {
  return among(given, 1, Limits::count(limits.log_max_srq) + Limits::count(limits.log_max_rmp));
}

Limits Resources::fit(Limits limits, const QueueNumbers& given) {
  const auto queues = queue_numbers(limits, given).count;
  const auto srqs = srq_numbers(limits, given).count;
  limits.log_max_qp = lower(limits.log_max_qp, queues);
  limits.log_max_sq = lower(limits.log_max_sq, queues);
  limits.log_max_rq = lower(limits.log_max_rq, queues);
  limits.log_max_srq = lower(limits.log_max_srq, srqs);
  limits.log_max_rmp = lower(limits.log_max_rmp, srqs);
  return limits;
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
