#include "rdma/congestion.h"

#include <algorithm>
#include <cmath>

#include "rdma/queue_pair.h"

namespace softhca::rdma {

namespace {

using util::Duration;
using util::Time;
using Microseconds = std::chrono::microseconds;

constexpr double kAlphaUnit = 1024;
/// Increases by time that an idle QP catches up on; beyond that it is at full rate.
constexpr std::uint32_t kIncreasesAtOnce = 256;
constexpr Duration kSweepInterval = std::chrono::milliseconds(1);

}  // namespace

CongestionControl::CongestionControl() {
  reacts.fill(true);
  notifies.fill(true);
  flows_.reserve(kFlowsMax);
}

bool CongestionControl::handle_mark(unsigned priority, Time now) {
  ++counters.ecn_marked_packets;
  if (!notifies[priority] || now < next_cnp_) return false;
  next_cnp_ = now + Microseconds(notification.min_time_between_cnps);
  ++counters.cnp_sent;
  return true;
}

double CongestionControl::max_rate() const {
  const auto max = reaction.max_rate == 0 ? kLineRate : std::min(reaction.max_rate, kLineRate);
  return std::max(max, std::max(reaction.min_rate, 1u));
}

CongestionControl::Flow* CongestionControl::find(const QueuePair& qp) {
  return qp.flow_ == 0 ? nullptr : &flows_[qp.flow_ - 1];
}

void CongestionControl::handle_cnp(QueuePair& qp, unsigned priority, Time now) {
  sweep(now);
  auto* flow = find(qp);
  if (!reacts[priority] || (flow == nullptr && flows_.size() == kFlowsMax)) {
    ++counters.cnp_ignored;
    return;
  }
  ++counters.cnp_handled;
  if (flow == nullptr) {
    flow = &flows_.emplace_back();
    qp.flow_ = static_cast<std::uint16_t>(flows_.size());
    const auto first = reaction.rate_to_set_on_first_cnp;
    *flow = {.qp = &qp,
             .rate = max_rate(),
             .target = max_rate(),
             .alpha = static_cast<double>(reaction.initial_alpha_value),
             .alpha_at = now,
             .increase_at = now,
             .decrease_at = now,
             .next_send = now};
    if (first != 0) {
      flow->rate = std::min<double>(std::max(first, reaction.min_rate), max_rate());
    } else {
      decrease(*flow, now);
    }
    return;
  }
  advance(*flow, now);
  // A further CNP raises alpha, whether or not the rate is decreased.
  flow->alpha = flow->alpha * reaction.dce_tcp_g / kAlphaUnit + kAlphaUnit - reaction.dce_tcp_g;
  flow->alpha_at = now;
  if (now - flow->decrease_at >= Microseconds(reaction.rate_reduce_monitor_period)) {
    decrease(*flow, now);
  }
}

bool CongestionControl::wants_new_target(const Flow& flow) const {
  return reaction.clamp_target_rate || flow.by_bytes != 0 ||
         (reaction.clamp_target_rate_after_time && flow.by_time != 0);
}

void CongestionControl::decrease(Flow& flow, Time now) const {
  if (wants_new_target(flow)) flow.target = flow.rate;
  const double left = 1 - flow.alpha / std::ldexp(1.0, static_cast<int>(reaction.gd));
  const double least = reaction.min_dec_fac / 100.0;
  flow.rate = std::max({flow.rate * std::max(left, least), double(reaction.min_rate), 1.0});
  flow.by_time = flow.by_bytes = 0;
  flow.bytes = 0;
  flow.increase_at = flow.decrease_at = now;
}

void CongestionControl::increase(Flow& flow) const {
  const auto most = std::max(flow.by_time, flow.by_bytes);
  const auto least = std::min(flow.by_time, flow.by_bytes);
  if (least > reaction.threshold) {
    flow.target += reaction.hai_rate;
  } else if (most > reaction.threshold) {
    flow.target += reaction.ai_rate;
  }
  flow.target = std::min(flow.target, max_rate());
  flow.rate = std::min((flow.rate + flow.target) / 2, max_rate());
}

void CongestionControl::advance(Flow& flow, Time now) const {
  if (reaction.dce_tcp_rtt != 0) {
    const Duration period = Microseconds(reaction.dce_tcp_rtt);
    const auto updates = (now - flow.alpha_at) / period;
    flow.alpha *= std::pow(reaction.dce_tcp_g / kAlphaUnit, static_cast<double>(updates));
    flow.alpha_at += updates * period;
  }
  if (reaction.time_reset == 0) return;
  const Duration period = Microseconds(reaction.time_reset);
  for (std::uint32_t i = 0; now - flow.increase_at >= period; ++i) {
    if (i == kIncreasesAtOnce) {
      flow.rate = flow.target = max_rate();
      flow.increase_at = now;
      return;
    }
    flow.increase_at += period;
    ++flow.by_time;
    increase(flow);
  }
}

double CongestionControl::rate(const QueuePair& qp, Time now) {
  auto* flow = find(qp);
  if (flow == nullptr) return max_rate();
  advance(*flow, now);
  return flow->rate;
}

Time CongestionControl::charge(QueuePair& qp, std::uint64_t bytes, Time now) {
  auto* flow = find(qp);
  if (flow == nullptr) return now;
  advance(*flow, now);
  flow->bytes += bytes;
  if (reaction.byte_reset != 0 && flow->bytes >= reaction.byte_reset) {
    flow->bytes %= reaction.byte_reset;
    ++flow->by_bytes;
    increase(*flow);
  }
  if (is_recovered(*flow)) {
    forget(qp);
    return now;
  }
  constexpr double kNanosecondsOfBit = 1000;  // at 1 Mb/s
  const double takes = static_cast<double>(bytes) * 8 * kNanosecondsOfBit / flow->rate;
  flow->next_send = std::max(flow->next_send, now) + Duration(static_cast<Duration::rep>(takes));
  return flow->next_send;
}

/// Close enough to full rate: the last steps would never end.
bool CongestionControl::is_recovered(const Flow& flow) const {
  return flow.rate > 0.999 * max_rate();
}

void CongestionControl::erase(std::size_t place) {
  flows_[place].qp->flow_ = 0;
  if (place + 1 != flows_.size()) {
    flows_[place] = flows_.back();
    flows_[place].qp->flow_ = static_cast<std::uint16_t>(place + 1);
  }
  flows_.pop_back();
}

void CongestionControl::forget(QueuePair& qp) {
  if (qp.flow_ != 0) erase(qp.flow_ - 1u);
}

/// QPs that have stopped sending would otherwise keep their slots.
void CongestionControl::sweep(Time now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweepInterval;
  for (auto place = flows_.size(); place-- != 0;) {
    advance(flows_[place], now);
    if (is_recovered(flows_[place])) erase(place);
  }
}

}  // namespace softhca::rdma
