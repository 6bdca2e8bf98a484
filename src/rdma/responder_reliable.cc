// Requests to a reliable QP: PSN order, READ, duplicates, refusals (IBTA 9.7.4, 9.7.5).

#include <algorithm>

#include "rdma/atomic_operation.h"
#include "rdma/engine.h"
#include "rdma/responder.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using wire::Operation;

namespace {

constexpr bool is_message(Operation operation) {
  return operation == Operation::kRdmaWrite || operation == Operation::kSend;
}

/// Packets of a READ response of `length` bytes.
std::uint32_t read_packets(std::uint64_t length, std::uint64_t mtu) {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>((length + mtu - 1) / mtu));
}

/// The event of a request that ends the QP.
QpEvent event_of(const Verdict& verdict) {
  if (verdict.reason == Reason::kXrcSrqUnknown) return QpEvent::kInvalidXrceth;
  if (verdict.reason == Reason::kXrcSrqOfOtherDomain) return QpEvent::kXrcDomainViolation;
  return verdict.kind == Verdict::Kind::kAccess ? QpEvent::kAccessError : QpEvent::kInvalidRequest;
}

}  // namespace

inline Verdict Responder::execute(const wire::IbPacket& packet, const wire::Frame& frame) {
  // The opcode is checked before the XRCETH, which a reserved one need not have.
  if (qp_.service().names_srq && packet.info().operation != Operation::kUnsupported) {
    if (const auto verdict = select_srq(packet); !verdict.ok()) return verdict;
  }
  return is_message(packet.info().operation) ? handle_message(packet, frame)
                                             : execute_answered(packet, frame);
}

void Responder::handle_reliable(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto distance = packet.bth.psn - numbers_.expected;
  if (distance < 0) return handle_duplicate(packet);
  if (distance > 0) {
    ++qp_.counters_->out_of_sequence;
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
  if (fault_ == Fault::kReceive || fault_ == Fault::kAccess) {
    return refuse({Verdict::Kind::kNotReady, Reason::kPageAbsent});
  }
  if (const auto verdict = execute(packet, frame); !verdict.ok()) return refuse(verdict);
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
Verdict Responder::execute_answered(const wire::IbPacket& packet, const wire::Frame& frame) {
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
      return {Verdict::Kind::kInvalid, Reason::kUnsupportedRequest};
    default:
      return {Verdict::Kind::kInvalid, Reason::kNotARequest};
  }
  if (message_ != Message::kNone) {
    return {Verdict::Kind::kInvalid, Reason::kRequestInMessage};
  }
  if (packet.payload_size != payload) {
    return {Verdict::Kind::kInvalid, Reason::kRequestWithPayload};
  }
  if (answers_.ring().firsts() >= qp_.attributes().max_dest_rd_atomic) {
    return {Verdict::Kind::kInvalid, Reason::kTooManyReads};
  }
  return packet.info().operation == Operation::kRdmaReadRequest ? execute_read(packet)
                                                                : execute_atomic(packet, frame);
}

Verdict Responder::execute_read(const wire::IbPacket& packet) {
  using enum Verdict::Kind;
  const auto& reth = packet.ext.reth;
  if (!qp_.attributes().access_flags.remote_read) return {kInvalid, Reason::kReadForbidden};
  if (reth.dma_length > qp_.attributes().message_max) return {kInvalid, Reason::kReadTooLong};
  if (reth.dma_length != 0) {
    const auto found = engine_.keys.check(MKey(reth.rkey.value()), user(), reth.virtual_address,
                                          reth.dma_length, kRemoteRead);
    if (!found) {
      return wait_for_page({.kind = PageFaultKind::kRemoteRead,
                            .packet_length = std::min(reth.dma_length, qp_.attributes().path_mtu),
                            .rkey = MKey(reth.rkey.value()),
                            .address = reth.virtual_address,
                            .length = reth.dma_length},
                           {kAccess, found.reason});
    }
  }
  ++qp_.counters_->rx_read_requests;
  ++numbers_.msn;
  answers_.push({.next = packet.bth.psn,
                 .left = read_packets(reth.dma_length, qp_.attributes().path_mtu),
                 .msn = numbers_.msn,
                 .pd = pd_,
                 .rkey = MKey(reth.rkey.value()),
                 .address = reth.virtual_address,
                 .length = reth.dma_length});
  return {};
}

Verdict Responder::execute_atomic(const wire::IbPacket& packet, const wire::Frame& frame) {
  using enum Verdict::Kind;
  const auto& eth = packet.ext.atomic;
  const AtomicOperation atomic(packet, frame);
  if (!qp_.attributes().access_flags.remote_atomic) return {kInvalid, Reason::kAtomicForbidden};
  if (atomic.is_masked()) {
    if (atomic.size() != 4 && atomic.size() != 8) return {kInvalid, Reason::kAtomicUnaligned};
    if ((atomic.size() & qp_.attributes().access_flags.masked_atomic_sizes) == 0) {
      return {kInvalid, Reason::kAtomicForbidden};
    }
  }
  const auto size = atomic.size();
  if (eth.virtual_address % size != 0) return {kInvalid, Reason::kAtomicUnaligned};
  const auto found =
      engine_.keys.check(MKey(eth.rkey.value()), user(), eth.virtual_address, size, kRemoteAtomic);
  const PageFault fault{.kind = PageFaultKind::kRemoteWrite,
                        .packet_length = size,
                        .rkey = MKey(eth.rkey.value()),
                        .address = eth.virtual_address,
                        .length = size};
  if (!found) return wait_for_page(fault, {kAccess, found.reason});
  std::uint64_t original = 0;
  if (!atomic.carry_out(engine_.keys, *found.key, eth.virtual_address, original)) {
    return wait_for_page(fault, Verdict::of_memory(engine_.keys.fault()));
  }
  ++qp_.counters_->rx_atomic_requests;
  ++numbers_.msn;
  atomics_.grow(std::max(1u, qp_.attributes().max_dest_rd_atomic));
  atomics_.remember(packet.bth.psn, original);
  answers_.push({.next = packet.bth.psn,
                 .left = 1,
                 .atomic = true,
                 .msn = numbers_.msn,
                 .pd = {},
                 .rkey = {},
                 .original = original});
  return {};
}

// Duplicates -------------------------------------------------------------------------------------

void Responder::handle_duplicate(const wire::IbPacket& packet) {
  ++qp_.counters_->duplicate_request;
  switch (packet.info().operation) {
    case Operation::kRdmaReadRequest:
      return repeat_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kMaskedCompareSwap:
    case Operation::kMaskedFetchAdd:
      return repeat_atomic(packet);
    default:
      // The request was executed; its acknowledgement may have been lost.
      return answers_.acknowledge();
  }
}

void Responder::push_repeated(Answer answer) {
  // Leave room for first-time requests.
  if (!answers_.ring().may_repeat(qp_.attributes().max_dest_rd_atomic)) {
    return engine_.drop(&qp_, Drop::kResources, Reason::kTooManyDuplicates);
  }
  answer.repeated = true;
  answers_.push(answer);
}

void Responder::repeat_read(const wire::IbPacket& packet) {
  const auto& reth = packet.ext.reth;
  const auto packets = read_packets(reth.dma_length, qp_.attributes().path_mtu);
  // A duplicate must lie entirely before the expected PSN.
  const bool known = reth.dma_length <= qp_.attributes().message_max &&
                     packet.bth.psn + packets - numbers_.expected <= 0;
  if (!known || !qp_.attributes().access_flags.remote_read) {
    return engine_.drop(&qp_, Drop::kSequence, Reason::kRepeatedReadAhead);
  }
  if (qp_.service().names_srq) {
    if (const auto verdict = select_srq(packet); !verdict.ok()) {
      return engine_.drop(&qp_, Drop::kSequence, verdict.reason);
    }
  }
  if (reth.dma_length != 0) {
    // The key may be gone by now: a late copy of a packet must not fail the QP.
    const auto found = engine_.keys.check(MKey(reth.rkey.value()), user(), reth.virtual_address,
                                          reth.dma_length, kRemoteRead);
    if (!found && found.reason != Reason::kPageAbsent) {
      return engine_.drop(&qp_, Drop::kSequence, found.reason);
    }
  }
  if (!answers_.go_back(packet.bth.psn)) return;
  push_repeated({.next = packet.bth.psn,
                 .left = packets,
                 .msn = numbers_.msn,
                 .pd = pd_,
                 .rkey = MKey(reth.rkey.value()),
                 .address = reth.virtual_address,
                 .length = reth.dma_length});
}

void Responder::repeat_atomic(const wire::IbPacket& packet) {
  const auto* original = atomics_.find(packet.bth.psn);
  if (original == nullptr) {
    return engine_.drop(&qp_, Drop::kSequence, Reason::kRepeatedAtomicTooOld);
  }
  if (!answers_.go_back(packet.bth.psn)) return;
  push_repeated({.next = packet.bth.psn,
                 .left = 1,
                 .atomic = true,
                 .msn = numbers_.msn,
                 .pd = {},
                 .rkey = {},
                 .original = *original});
}

// Refusals ---------------------------------------------------------------------------------------

void Responder::refuse(const Verdict& verdict) {
  using enum Verdict::Kind;
  if (verdict.kind == kNotReady) {
    // IBTA 9.7.5.2.8: drop all following packets silently until this one is sent again, however
    // long the rest of the peer's burst takes to arrive.
    silent_ = true;
    ++qp_.counters_->rnr_naks_sent;
    return answers_.reply(wire::AethType::RNR_NAK, qp_.attributes().min_rnr_timer);
  }
  fatal_ = true;
  auto code = wire::NakCode::REMOTE_OPERATIONAL_ERROR;
  if (verdict.kind == kInvalid) {
    code = wire::NakCode::INVALID_REQUEST;
    ++qp_.counters_->resp_remote_invalid_request;
  } else if (verdict.kind == kAccess) {
    code = wire::NakCode::REMOTE_ACCESS_ERROR;
    ++qp_.counters_->resp_remote_access_errors;
  }
  engine_.note(qp_, "request refused", verdict.reason);
  answers_.reply(wire::AethType::NAK, static_cast<std::uint8_t>(code));
  if (!verdict.completed) {
    engine_.event(qp_, event_of(verdict), verdict.reason);
  }
}

// Answers ----------------------------------------------------------------------------------------

unsigned Responder::send_answers(unsigned quota) {
  if (fault_ == Fault::kAnswers) return 0;
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

}  // namespace softhca::rdma
