#include "rdma/responder.h"

#include "rdma/engine.h"

namespace softhca::rdma {

void Responder::reset() {
  stop();
  numbers_.expected = {};
  numbers_.msn = {};
  message_ = Message::kNone;
  uc_skip_ = false;
  receives_.reset();
  silent_ = false;
  received_ = 0;
  answers_.ring().reset();
  atomics_ = {};
}

void Responder::start(std::uint32_t psn) {
  numbers_.expected = wire::Psn(psn);
  if (!qp_.service().reliable || !qp_.service().responds) return;
  atomics_.clear();
  answers_.ring().reset();
  make_room();
}

void Responder::make_room() { answers_.ring().allow(qp_.attributes().max_dest_rd_atomic); }

void Responder::handle_attributes() {
  receives_.forget();
  seen_key_ = read_key_ = {};
}

void Responder::stop() {
  answers_.clear();
  fatal_ = false;
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
Verdict Responder::select_srq(const wire::IbPacket& packet) {
  forget_lost_receive();
  const auto* srq = receives_.select(packet.ext.xrceth.xrc_srq);
  if (srq == nullptr) return {Verdict::Kind::kInvalid, Reason::kXrcSrqUnknown};
  if (srq->domain != qp_.options().xrc_domain) {
    return {Verdict::Kind::kInvalid, Reason::kXrcSrqOfOtherDomain};
  }
  pd_ = srq->pd;
  return {};
}

/// Ends the message whose receive request is lost with its SRQ.
void Responder::forget_lost_receive() {
  if (receives_.forget_lost()) message_ = Message::kNone;
}

bool Responder::give_up_receive() {
  if (!receives_.has_taken()) return true;
  if (message_ != Message::kNone || waits_for_page()) return false;
  receives_.fail(WorkStatus::kFlushed, Reason::kFlushed);
  return true;
}

unsigned Responder::flush(unsigned quota) {
  forget_lost_receive();
  return receives_.flush(quota);
}

}  // namespace softhca::rdma
