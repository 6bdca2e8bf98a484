#include "rdma/responder.h"

#include <algorithm>

#include "rdma/engine.h"

namespace softhca::rdma {

using wire::Operation;
using Waiter = ResponderFault::Waiter;

namespace {

constexpr bool is_message(Operation operation) {
  return operation == Operation::kRdmaWrite || operation == Operation::kSend;
}

/// The event of a request that ends the QP.
QpEvent event_of(const RequestOutcome& outcome) {
  if (outcome.reason == Reason::kXrcSrqUnknown) return QpEvent::kInvalidXrceth;
  if (outcome.reason == Reason::kXrcSrqOfOtherDomain) return QpEvent::kXrcDomainViolation;
  return outcome.kind == RequestOutcome::Kind::kAccess ? QpEvent::kAccessError
                                                       : QpEvent::kInvalidRequest;
}

}  // namespace

Responder::Responder(Engine& engine, QueuePair& qp)
    : engine_(engine),
      qp_(qp),
      fault_(qp.queues()),
      answers_(engine, qp),
      message_(engine, qp, fault_),
      reads_(engine, qp, fault_),
      datagrams_(engine, qp, fault_) {}

void Responder::reset() {
  stop();
  numbers_.expected = {};
  numbers_.msn = {};
  message_.reset();
  uc_skip_ = false;
  silent_ = false;
  answers_.ring().reset();
  reads_.reset();
}

void Responder::start(std::uint32_t psn) {
  numbers_.expected = wire::Psn(psn);
  if (!qp_.service().reliable || !qp_.service().responds) return;
  reads_.start();
  answers_.ring().reset();
  make_room();
}

void Responder::make_room() { answers_.ring().allow(qp_.attributes().max_dest_rd_atomic); }

void Responder::handle_attributes() {
  message_.receives().forget();
  key_cache_ = read_key_ = {};
}

void Responder::stop() {
  answers_.clear();
  fatal_ = false;
  fault_.close();
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
  message_.set_pd(qp_.attributes().pd);
  if (service.reliable) return handle_reliable(packet, frame);
  if (service.datagram) {
    return datagrams_.receive(packet, frame, message_.receives(), numbers_.msn);
  }
  handle_unreliable(packet, frame);
}

bool Responder::give_up_receive() {
  if (!message_.receives().has_taken()) return true;
  if (message_.has_begun() || waits_for_page()) return false;
  message_.receives().fail(WorkStatus::kFlushed, Reason::kFlushed);
  return true;
}

unsigned Responder::flush(unsigned quota) {
  message_.forget_lost_receive();
  return message_.receives().flush(quota);
}

unsigned Responder::handle_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                   unsigned count) {
  const auto& service = qp_.service();
  // XRC names an SRQ in each packet.
  if (!state_rules(qp_.state()).receives || fatal_ || service.names_srq) return 0;
  if (packet.bth.psn != numbers_.expected || uc_skip_ || waits_for_page()) return 0;
  if (!message_.handle_middles(packet, frame, count)) return 0;
  numbers_.expected += count;
  if (service.reliable) {
    silent_ = false;
    answers_.withdraw_nak();  // the NAK requested this packet
    if (frame.train().ack_req_at_end) answers_.acknowledge();
  }
  return count;
}

/// IBTA 9.8.2, 9.8.3: losses and refusals are not reported to the peer.
void Responder::handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto& info = packet.info();
  const bool in_sequence = packet.bth.psn == numbers_.expected;
  numbers_.expected = packet.bth.psn.next();
  // IBTA 9.8.2.2: a gap, or a new First, drops the current message. Its receive request serves the
  // next one.
  if (!in_sequence || (info.first && message_.has_begun())) {
    uc_skip_ = true;
    message_.drop();
  }
  if (info.first) uc_skip_ = false;
  if (uc_skip_) {
    if (info.last) uc_skip_ = false;
    ++qp_.counters().out_of_sequence;
    return engine_.drop(&qp_, Drop::kUcMessage, Reason::kBrokenMessage);
  }
  const auto outcome = message_.handle(packet, frame, numbers_.msn);
  if (outcome.ok()) return;
  message_.drop();
  uc_skip_ = !info.last;
  const bool no_receive = outcome.reason == Reason::kNothingPosted;
  engine_.drop(&qp_, no_receive ? Drop::kNoReceive : Drop::kUcMessage, outcome.reason);
  // A fault of the QP's own receive queue ends the QP; a fault of the peer does not.
  if (outcome.completed) engine_.to_error(qp_);
}

// Requests to a reliable QP (IBTA 9.7.4, 9.7.5) ---------------------------------------------------

inline RequestOutcome Responder::execute(const wire::IbPacket& packet, const wire::Frame& frame) {
  // The opcode is checked before the XRCETH, which a reserved one need not have.
  if (qp_.service().names_srq && packet.info().operation != Operation::kUnsupported) {
    if (const auto outcome = message_.select_srq(packet); !outcome.ok()) return outcome;
  }
  return is_message(packet.info().operation) ? message_.handle(packet, frame, numbers_.msn)
                                             : execute_answered(packet, frame);
}

void Responder::handle_reliable(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto distance = packet.bth.psn - numbers_.expected;
  if (distance < 0) return handle_duplicate(packet);
  if (distance > 0) {
    ++qp_.counters().out_of_sequence;
    engine_.drop(&qp_, Drop::kSequence, Reason::kPsnAhead);
    // IBTA 9.7.5.2: one NAK, then silence until the expected packet has arrived.
    if (!silent_) {
      silent_ = true;
      answers_.reply(wire::AethType::NAK,
                     static_cast<std::uint8_t>(wire::NakCode::PSN_SEQUENCE_ERROR));
    }
    return;
  }
  silent_ = false;
  answers_.withdraw_nak();  // the NAK requested this packet
  const auto psns = packet.info().operation == Operation::kRdmaReadRequest
                        ? read_packets(packet.ext.reth.dma_length, qp_.attributes().path_mtu)
                        : 1;
  if (fault_.waiter() == Waiter::kReceive || fault_.waiter() == Waiter::kAccess) {
    return refuse({RequestOutcome::Kind::kNotReady, Reason::kPageAbsent});
  }
  if (const auto outcome = execute(packet, frame); !outcome.ok()) return refuse(outcome);
  numbers_.expected += psns;
  if (packet.info().operation == Operation::kRdmaReadRequest) {
    if (!waits_for_page()) answers_.send_only();
    return;
  }
  // READ and atomic responses acknowledge their request and all before it.
  if (!packet.bth.ack_req || !is_message(packet.info().operation)) return;
  if (packet.info().last) {
    answers_.acknowledge_end(numbers_);
  } else {
    answers_.acknowledge();
  }
}

/// READs and atomics: requests without payload, answered with data.
RequestOutcome Responder::execute_answered(const wire::IbPacket& packet, const wire::Frame& frame) {
  std::size_t payload = 0;
  switch (packet.info().operation) {
    case Operation::kRdmaReadRequest:
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      break;
    case Operation::kMaskedCompareSwap:
    case Operation::kMaskedFetchAdd:
      payload = wire::MaskedAtomicLayout::kSize;
      break;
    case Operation::kUnsupported:
      return {RequestOutcome::Kind::kInvalid, Reason::kUnsupportedRequest};
    default:
      return {RequestOutcome::Kind::kInvalid, Reason::kNotARequest};
  }
  if (message_.has_begun()) {
    return {RequestOutcome::Kind::kInvalid, Reason::kRequestInMessage};
  }
  if (packet.payload_size != payload) {
    return {RequestOutcome::Kind::kInvalid, Reason::kRequestWithPayload};
  }
  if (answers_.ring().firsts() >= qp_.attributes().max_dest_rd_atomic) {
    return {RequestOutcome::Kind::kInvalid, Reason::kTooManyReads};
  }
  const auto peer = message_.peer();
  return packet.info().operation == Operation::kRdmaReadRequest
             ? reads_.execute_read(packet, peer, numbers_, answers_)
             : reads_.execute_atomic(packet, frame, peer, numbers_, answers_);
}

// Duplicates -------------------------------------------------------------------------------------

void Responder::handle_duplicate(const wire::IbPacket& packet) {
  ++qp_.counters().duplicate_request;
  switch (packet.info().operation) {
    case Operation::kRdmaReadRequest:
      return repeat_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kMaskedCompareSwap:
    case Operation::kMaskedFetchAdd:
      return reads_.repeat_atomic(packet, numbers_, answers_);
    default:
      // The request was executed; its acknowledgement may have been lost.
      return answers_.acknowledge();
  }
}

void Responder::repeat_read(const wire::IbPacket& packet) {
  if (!reads_.may_repeat_read(packet, numbers_)) {
    return engine_.drop(&qp_, Drop::kSequence, Reason::kRepeatedReadAhead);
  }
  if (qp_.service().names_srq) {
    if (const auto outcome = message_.select_srq(packet); !outcome.ok()) {
      return engine_.drop(&qp_, Drop::kSequence, outcome.reason);
    }
  }
  reads_.repeat_read(packet, message_.peer(), numbers_, answers_);
}

// Refusals ---------------------------------------------------------------------------------------

void Responder::refuse(const RequestOutcome& outcome) {
  using enum RequestOutcome::Kind;
  if (outcome.kind == kNotReady) {
    // IBTA 9.7.5.2.8: drop all following packets silently until this one is sent again, however
    // long the rest of the peer's burst takes to arrive.
    silent_ = true;
    ++qp_.counters().rnr_naks_sent;
    return answers_.reply(wire::AethType::RNR_NAK, qp_.attributes().min_rnr_timer);
  }
  fatal_ = true;
  auto code = wire::NakCode::REMOTE_OPERATIONAL_ERROR;
  if (outcome.kind == kInvalid) {
    code = wire::NakCode::INVALID_REQUEST;
    ++qp_.counters().resp_remote_invalid_request;
  } else if (outcome.kind == kAccess) {
    code = wire::NakCode::REMOTE_ACCESS_ERROR;
    ++qp_.counters().resp_remote_access_errors;
  }
  engine_.note(qp_, "request refused", outcome.reason);
  answers_.reply(wire::AethType::NAK, static_cast<std::uint8_t>(code));
  if (!outcome.completed) {
    engine_.event(qp_, event_of(outcome), outcome.reason);
  }
}

// Answers ----------------------------------------------------------------------------------------

unsigned Responder::send_answers(unsigned quota) {
  if (fault_.waiter() == Waiter::kAnswers) return 0;
  auto& ring = answers_.ring();
  unsigned used = 0;
  while (used < quota && !ring.empty()) {
    const auto sent = answers_.send_front(quota - used);
    used += std::max(1u, sent);
    if (sent == 0) {
      hold_answers();
      if (waits_for_page()) return used - 1;
    }
    if (engine_.keys.work().over_budget()) return used;
  }
  if (used != 0) ring.give_back();
  if (ring.empty() && answers_.reply_due() && used < quota) {
    ++used;
    answers_.send_reply(numbers_);
    if (fatal_) engine_.to_error(qp_);
  }
  return used;
}

/// The oldest answer cannot be read: it waits for its page, or ends the QP.
void Responder::hold_answers() {
  if (answers_.fault() != Reason::kPageAbsent) return fail_answers();
  if (waits_for_page()) return;
  const auto& first = answers_.ring().front();
  switch (fault_.open({.kind = PageFaultKind::kRemoteRead,
                       .packet_length = std::min(first.length, qp_.attributes().path_mtu),
                       .rkey = first.rkey,
                       .address = first.address,
                       .length = first.length},
                      Waiter::kAnswers)) {
    case FaultAnswer::kNobody:
      return fail_answers();
    case FaultAnswer::kBusy:
      // The peer requests missing responses again.
      return answers_.ring().clear();
    case FaultAnswer::kOpened:
      return;
  }
}

/// The memory went away while it was read: nothing from this answer on can be sent.
void Responder::fail_answers() {
  numbers_.expected = answers_.ring().front().next;
  answers_.ring().clear();
  fatal_ = true;
  ++qp_.counters().resp_remote_access_errors;
  engine_.event(qp_, QpEvent::kAccessError, Reason::kMemoryGoneDuringRead);
  answers_.reply(wire::AethType::NAK,
                 static_cast<std::uint8_t>(wire::NakCode::REMOTE_ACCESS_ERROR));
}

/// The page of a request cannot be made present. An unreliable QP has dropped the request; there
/// the receive request that it was for ends.
void Responder::fail_request(bool of_receive) {
  RequestOutcome outcome{RequestOutcome::Kind::kAccess, Reason::kPageNotBrought};
  if (of_receive) {
    outcome = {RequestOutcome::Kind::kOperation, Reason::kPageNotBrought, true};
    message_.forget_lost_receive();
    auto& receives = message_.receives();
    if (receives.has_taken()) receives.fail(WorkStatus::kLocalProtection, Reason::kPageNotBrought);
  }
  if (qp_.service().reliable) return refuse(outcome);
  if (of_receive) engine_.to_error(qp_);
}

bool Responder::resume(bool failed) {
  if (!waits_for_page()) return false;
  const auto waiter = fault_.waiter();
  fault_.close();
  if (failed) {
    if (waiter == Waiter::kAnswers) {
      fail_answers();
    } else {
      fail_request(waiter == Waiter::kReceive);
    }
  }
  engine_.mark_ready(qp_);
  return true;
}

}  // namespace softhca::rdma
