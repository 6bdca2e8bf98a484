#include "rdma/responder.h"

#include <algorithm>

#include "rdma/engine.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

void Responder::reset() {
  stop();
  expected_ = {};
  msn_ = {};
  message_ = Message::kNone;
  has_receive_ = uc_skip_ = false;
  silent_ = false;
  received_ = 0;
  answers_.reset();
  atomics_ = {};
}

void Responder::start(std::uint32_t psn) {
  expected_ = wire::Psn(psn);
  if (!qp_.service().reliable || !qp_.service().responds) return;
  atomics_.clear();
  answers_.reset();
  make_room();
}

void Responder::make_room() { answers_.allow(qp_.attributes().max_dest_rd_atomic); }

void Responder::stop() {
  answers_.clear();
  reply_due_ = fatal_ = false;
  close_fault();
}

void Responder::handle_request(const wire::IbPacket& packet, const wire::Frame& frame) {
  if (!state_rules(qp_.state()).receives || fatal_) {
    return engine_.drop(&qp_, Drop::kQpState, Reason::kUnexpectedRequest);
  }
  // IBTA 11.6.3.1: for connected services only; a datagram establishes nothing.
  if (qp_.state() == QpState::kRtr && qp_.service().connected && !qp_.communication_established_) {
    qp_.communication_established_ = true;
    engine_.event(qp_, QpEvent::kCommunicationEstablished, Reason::kFirstPacket);
  }
  const auto& service = qp_.service();
  pd_ = qp_.attributes().pd;
  if (service.reliable) return handle_reliable(packet, frame);
  if (service.datagram) return handle_datagram(packet, frame);
  handle_unreliable(packet, frame);
}

/// IBTA Annex A14: every XRC request names an SRQ of the target's domain. The PD of that SRQ
/// replaces the QP's.
Responder::Verdict Responder::select_srq(const wire::IbPacket& packet) {
  forget_lost_receive();
  srqn_ = packet.ext.xrceth.xrc_srq;
  const auto* srq = engine_.xrc_srqs.find(srqn_);
  if (srq == nullptr) return {Verdict::Kind::kInvalid, Reason::kXrcSrqUnknown};
  if (srq->domain != qp_.options().xrc_domain) {
    return {Verdict::Kind::kInvalid, Reason::kXrcSrqOfOtherDomain};
  }
  pd_ = srq->pd;
  srq_ = srq->incarnation;
  return {};
}

/// A shared receive queue may be destroyed after a request was taken from it. Each QP detects this
/// itself, as there may be very many QPs.
void Responder::forget_lost_receive() {
  if (!qp_.service().names_srq || !has_receive_) return;
  const auto* srq = engine_.xrc_srqs.find(receive_srqn_);
  if (srq != nullptr && srq->incarnation == receive_srq_) return;
  has_receive_ = false;
  message_ = Message::kNone;
}

/// Takes the next receive request, unless one was taken for this message, or for the packet that a
/// page fault refused. An XRC requester repeats that packet with the same SRQ.
Responder::Verdict Responder::take_receive() {
  if (has_receive_) {
    const bool of_srq = !qp_.service().names_srq || receive_srqn_ == srqn_;
    return of_srq ? Verdict{} : Verdict{Verdict::Kind::kInvalid, Reason::kXrcSrqChanged};
  }
  const auto& options = qp_.options();
  if (!options.has_receive_queue && !options.uses_srq && !qp_.service().names_srq) {
    return {Verdict::Kind::kInvalid, Reason::kNoReceiveQueue};
  }
  receive_.reset();
  receive_srqn_ = srqn_;
  receive_srq_ = srq_;
  const auto fetched = qp_.queues_.fetch_receive(receive_, srqn_);
  if (fetched != Fetch::kRequest && fetched != Fetch::kLastRequest) return miss_receive(fetched);
  has_receive_ = true;
  set_room(receive_.sges.size() == 1 ? receive_.sges.front().length : total_length(receive_.sges));
  return {};
}

/// `bytes`: those of the receive request. A message may not be longer than the QP's bound either
/// (IBTA 11.6.2, Local Length Error); a datagram has one packet.
void Responder::set_room(std::uint64_t bytes) {
  room_ = qp_.service().datagram ? bytes : std::min(bytes, qp_.attributes().message_max);
}

/// No receive request could be taken.
[[gnu::noinline]] Responder::Verdict Responder::miss_receive(Fetch fetched) {
  using enum Verdict::Kind;
  switch (fetched) {
    case Fetch::kNothing:
      ++qp_.counters_->out_of_buffer;
      return {kNotReady, Reason::kNothingPosted};
    case Fetch::kUnreadable:
      engine_.event(qp_, QpEvent::kCatastrophic, Reason::kReceiveQueueUnreachable);
      return {kOperation, Reason::kReceiveQueueUnreachable, true};
    default:
      break;
  }
  has_receive_ = true;
  fail_receive(WorkStatus::kLocalQpOperation,
               receive_.fault != Reason::kNone ? receive_.fault : Reason::kMalformedReceive);
  return {kOperation, Reason::kMalformedReceive, true};
}

/// Fills in the fields of a completion that describe the packet's source.
void Responder::show_source(const wire::IbPacket& packet, ReceiveCompletion& completion) const {
  const auto& address = packet.address;
  completion.pkey = packet.bth.pkey;
  completion.network = wire::network_header(address);
  completion.vlan_tci = address.vlan_tci;
  completion.source_lid = address.source_lid;
  completion.service_level = address.service_level;
  completion.path_bits = engine_.addresses.path_bits(address);
}

inline void Responder::end_receive(ReceiveCompletion& completion) {
  completion.cookie = receive_.cookie;
  completion.srqn = receive_srqn_;
  has_receive_ = false;
  if (completion.status == WorkStatus::kFlushed) {
    ++qp_.counters_->resp_cqe_flush_error;
  } else if (completion.status != WorkStatus::kSuccess) {
    ++qp_.counters_->resp_cqe_error;
    engine_.note(qp_, to_string(completion.status), completion.reason);
  }
}

void Responder::complete_receive(ReceiveCompletion& completion) {
  end_receive(completion);
  qp_.queues_.complete_receive(completion);
}

void Responder::complete_receive_with(ReceiveCompletion& completion,
                                      std::span<const std::byte> data) {
  end_receive(completion);
  qp_.queues_.complete_receive_with(completion, data);
}

void Responder::fail_receive(WorkStatus status, Reason reason) {
  ReceiveCompletion completion{};
  completion.status = status;
  completion.reason = reason;
  complete_receive(completion);
}

bool Responder::give_up_receive() {
  if (!has_receive_) return true;
  if (message_ != Message::kNone || waits_for_page()) return false;
  fail_receive(WorkStatus::kFlushed, Reason::kFlushed);
  return true;
}

unsigned Responder::flush(unsigned quota) {
  forget_lost_receive();
  unsigned used = 0;
  for (; used < quota; ++used) {
    if (!has_receive_) {
      // Requests in a shared receive queue belong to other QPs too.
      if (!qp_.options().has_receive_queue || qp_.options().uses_srq) return used;
      receive_.reset();
      const auto fetched = qp_.queues_.fetch_receive(receive_, {});
      if (fetched == Fetch::kNothing || fetched == Fetch::kUnreadable) return used;
    }
    fail_receive(WorkStatus::kFlushed, Reason::kFlushed);
  }
  return used;
}

}  // namespace softhca::rdma
