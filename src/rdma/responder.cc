#include "rdma/responder.h"

#include <algorithm>

#include "rdma/engine.h"

namespace softhca::rdma {

Responder::Responder(Engine& engine, QueuePair& qp)
    : engine_(engine), qp_(qp), receives_(engine, qp), write_(engine.keys), answers_(engine, qp) {}

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

// Page faults (page_fault.h). A reliable responder answers RNR NAK (IBTA 9.7.5.2.8). An unreliable
// one drops packets that it cannot place.

/// The verdict of a request whose memory is absent; any other `otherwise` is returned unchanged.
[[gnu::noinline]] Verdict Responder::wait_for_page(const PageFault& fault,
                                                   const Verdict& otherwise) {
  if (otherwise.reason != Reason::kPageAbsent) return otherwise;
  if (!waits_for_page()) {
    const auto answer = qp_.queues_.open_fault(fault);
    if (answer == FaultAnswer::kNobody) return otherwise;
    if (answer == FaultAnswer::kOpened) {
      fault_ = fault.kind == PageFaultKind::kReceive ? Fault::kReceive : Fault::kAccess;
    }
  }
  return {Verdict::Kind::kNotReady, Reason::kPageAbsent};
}

/// `fault` in the receive request, which stays for the retransmitted packet.
[[gnu::noinline]] Verdict Responder::receive_fault(Reason fault, const wire::IbPacket& packet) {
  const auto verdict =
      wait_for_page({.kind = PageFaultKind::kReceive,
                     .cookie = receives_.request().cookie,
                     .srqn = receives_.request_srqn(),
                     .committed = static_cast<std::uint32_t>(received_),
                     .packet_length = static_cast<std::uint32_t>(packet.payload_size)},
                    {Verdict::Kind::kOperation, fault, true});
  if (verdict.completed) {
    receives_.fail(WorkStatus::kLocalProtection, fault);
  } else if (packet.info().first) {
    message_ = Message::kNone;
  }
  return verdict;
}

/// The same for the memory behind a WRITE's R_Key.
[[gnu::noinline]] Verdict Responder::write_fault(Reason fault, const Verdict& otherwise,
                                                 const wire::IbPacket& packet) {
  if (fault != Reason::kPageAbsent) return otherwise;
  const auto verdict =
      wait_for_page({.kind = PageFaultKind::kRemoteWrite,
                     .committed = static_cast<std::uint32_t>(received_),
                     .packet_length = static_cast<std::uint32_t>(packet.payload_size),
                     .rkey = write_.rkey(),
                     .address = write_.address() - received_,
                     .length = static_cast<std::uint32_t>(received_ + write_.left())},
                    otherwise);
  if (packet.info().first) {
    message_ = Message::kNone;
    --qp_.counters_->rx_write_requests;
  }
  return verdict;
}

/// The oldest answer cannot be read: it waits for its page, or ends the QP.
void Responder::hold_answers() {
  if (answers_.fault() != Reason::kPageAbsent) return fail_answers();
  if (waits_for_page()) return;
  const auto& first = answers_.ring().front();
  switch (
      qp_.queues_.open_fault({.kind = PageFaultKind::kRemoteRead,
                              .packet_length = std::min(first.length, qp_.attributes().path_mtu),
                              .rkey = first.rkey,
                              .address = first.address,
                              .length = first.length})) {
    case FaultAnswer::kNobody:
      return fail_answers();
    case FaultAnswer::kBusy:
      // The peer requests missing responses again.
      return answers_.ring().clear();
    case FaultAnswer::kOpened:
      fault_ = Fault::kAnswers;
  }
}

/// The memory went away while it was read: nothing from this answer on can be sent.
void Responder::fail_answers() {
  numbers_.expected = answers_.ring().front().next;
  answers_.ring().clear();
  fatal_ = true;
  ++qp_.counters_->resp_remote_access_errors;
  engine_.event(qp_, QpEvent::kAccessError, Reason::kMemoryGoneDuringRead);
  answers_.reply(wire::AethType::NAK,
                 static_cast<std::uint8_t>(wire::NakCode::REMOTE_ACCESS_ERROR));
}

/// The page of a request cannot be made present. An unreliable QP has dropped the request; there
/// the receive request that it was for ends.
void Responder::fail_request(bool of_receive) {
  Verdict verdict{Verdict::Kind::kAccess, Reason::kPageNotBrought};
  if (of_receive) {
    verdict = {Verdict::Kind::kOperation, Reason::kPageNotBrought, true};
    forget_lost_receive();
    if (receives_.has_taken())
      receives_.fail(WorkStatus::kLocalProtection, Reason::kPageNotBrought);
  }
  if (qp_.service().reliable) return refuse(verdict);
  if (of_receive) engine_.to_error(qp_);
}

void Responder::close_fault() {
  if (!waits_for_page()) return;
  fault_ = Fault::kNone;
  qp_.queues_.close_fault();
}

bool Responder::resume(bool failed) {
  if (!waits_for_page()) return false;
  const auto fault = fault_;
  close_fault();
  if (failed) {
    if (fault == Fault::kAnswers) {
      fail_answers();
    } else {
      fail_request(fault == Fault::kReceive);
    }
  }
  engine_.mark_ready(qp_);
  return true;
}

}  // namespace softhca::rdma
