#include "rdma/queue_pair.h"

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "rdma/work_queues.h"
#include "rdma/work_request.h"

namespace softhca::rdma {
namespace {

/// A dummy set for QPs whose device does not count.
QpCounters* unread_counters() {
  static thread_local QpCounters counters;
  return &counters;
}

}  // namespace

QueuePair::QueuePair(Engine& engine, Qpn qpn, QpType type, const QpAttributes& attributes,
                     const QpOptions& options, WorkQueues& queues)
    : engine_(engine),
      qpn_(qpn),
      service_(service_rules(type)),
      attributes_(attributes),
      options_(options),
      queues_(queues),
      requests_(&queues),
      requester_(std::make_unique<Requester>(engine, *this)),
      responder_(std::make_unique<Responder>(engine, *this)) {
  set_counters(options.counters);
  refresh_pkey();
}

QueuePair::~QueuePair() = default;

void QueuePair::set_counters(QpCounters* counters) {
  options_.counters = counters;
  counters_ = counters != nullptr ? counters : unread_counters();
}

void QueuePair::take(const QpAttributes& from, QpAttributeSet taken) {
  using enum spec::infiniband::QpAttribute;
  auto& to = attributes_;
  const auto copy = [&](spec::infiniband::QpAttribute attribute, auto... fields) {
    if (taken.has(attribute)) ((to.*fields = from.*fields), ...);
  };
  copy(kAccessFlags, &QpAttributes::access_flags);
  copy(kPkeyIndex, &QpAttributes::pkey_index);
  copy(kQkey, &QpAttributes::qkey);
  if (taken.has(kAddressVector)) {
    to.path = from.path;
  } else {
    if (service_.datagram) to.path.own_source = from.path.own_source;
    // Not an attribute of InfiniBand: devices change it while the QP is connected.
    if (from.path.udp_source_port != 0) to.path.udp_source_port = from.path.udp_source_port;
  }
  copy(kPathMtu, &QpAttributes::path_mtu, &QpAttributes::message_max);
  copy(kTimeout, &QpAttributes::ack_timeout);
  copy(kRetryCount, &QpAttributes::retry_count);
  copy(kRnrRetry, &QpAttributes::rnr_retry);
  copy(kRqPsn, &QpAttributes::rq_psn);
  copy(kMaxRdAtomic, &QpAttributes::max_rd_atomic);
  copy(kMinRnrTimer, &QpAttributes::min_rnr_timer);
  copy(kSqPsn, &QpAttributes::sq_psn);
  copy(kMaxDestRdAtomic, &QpAttributes::max_dest_rd_atomic);
  copy(kDestinationQpn, &QpAttributes::remote_qpn);
  to.pd = from.pd;
  to.reserved_lkey = from.reserved_lkey;
  to.deth_source_qpn = from.deth_source_qpn;
  invalidate_headers();
  refresh_pkey();
  requester_->handle_attributes();
  responder_->handle_attributes();
}

void QueuePair::connect_to(const UdDestination& target) {
  attributes_.path = target;
  attributes_.remote_qpn = target.qpn;
  invalidate_headers();
}

void QueuePair::refresh_pkey() { pkey_ = engine_.pkeys.get(attributes_.pkey_index); }

bool QueuePair::drained() const {
  return state_ == QpState::kSqDrain && requester_->queue().window().idle();
}
bool QueuePair::give_up_receive() { return responder_->give_up_receive(); }
bool QueuePair::flushes_receives() const { return state_rules(state_).flushes_receive; }
std::uint32_t QueuePair::next_send_psn() const {
  return static_cast<std::uint32_t>(requester_->queue().window().next_psn()) & wire::Psn::kMask;
}
std::uint32_t QueuePair::last_acked_psn() const {
  return static_cast<std::uint32_t>(requester_->queue().window().unacked() - 1) & wire::Psn::kMask;
}
std::uint32_t QueuePair::next_receive_psn() const { return responder_->expected_psn(); }
std::uint32_t QueuePair::send_sequence() const {
  return static_cast<std::uint32_t>(requester_->queue().window().begun()) & wire::Msn::kMask;
}
std::uint32_t QueuePair::receive_sequence() const { return responder_->msn(); }
std::uint8_t QueuePair::retries_left() const { return requester_->retries().left(); }
std::uint8_t QueuePair::rnr_retries_left() const { return requester_->retries().rnr_left(); }

void QueuePair::inspect(util::InspectNode& out) const {
  out.add("type", service_.name);
  out.add("state", to_string(state_));
  out.add_hex("pd", attributes_.pd.value());
  if (service_.connected) {
    out.add_hex("peer_qpn", attributes_.remote_qpn.value());
    out.add("path_mtu", attributes_.path_mtu);
  }
  out.add_hex("pkey", pkey_);
  auto& sends = out.child("requester");
  sends.add_hex("next_send_psn", next_send_psn());
  sends.add_hex("last_acked_psn", last_acked_psn());
  sends.add("requests_begun", send_sequence());
  requester_->inspect(sends);
  auto& receives = out.child("responder");
  receives.add_hex("next_receive_psn", next_receive_psn());
  receives.add("messages", receive_sequence());
  receives.add("answers_waiting", responder_->waiting_answers());
  receives.add("waits_for_page", responder_->waits_for_page());
}

}  // namespace softhca::rdma
