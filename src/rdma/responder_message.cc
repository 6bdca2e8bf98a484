// SEND and RDMA WRITE messages, packet by packet; the same for RC and UC.

#include <array>

#include "rdma/receive_queue_inl.h"
#include "rdma/responder.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using wire::ExtHeader;
using wire::Operation;

namespace {

/// IBTA 9.7.4.1: all packets but the last have path MTU bytes; a last one is not empty.
[[gnu::always_inline]] inline Verdict check_size(const wire::IbPacket& packet, std::uint32_t mtu) {
  const auto& info = packet.info();
  const auto size = packet.payload_size;
  const bool right = info.last ? size <= mtu && (info.first || size != 0) : size == mtu;
  return right ? Verdict{} : Verdict{Verdict::Kind::kInvalid, Reason::kPacketSize};
}

/// True if the device takes the whole message with the completion.
bool goes_with_completion(const wire::IbPacket& packet, const QpOptions& options) {
  // For an empty message the difference wraps, which yields false.
  const std::uint32_t size = packet.payload_size;
  return size - 1 < options.completion_data.of_sends && packet.info().only();
}

}  // namespace

/// IBTA 9.7.4.1: a message begins with First or Only, and only packets of the same kind follow
/// until its Last.
[[gnu::always_inline]] inline Verdict Responder::check_order(const wire::IbPacket& packet) const {
  const auto& info = packet.info();
  if (info.first != (message_ == Message::kNone)) {
    return {Verdict::Kind::kInvalid,
            info.first ? Reason::kMessageInMessage : Reason::kMiddleOfNothing};
  }
  if (!info.first && (info.operation == Operation::kSend) != (message_ == Message::kSend)) {
    return {Verdict::Kind::kInvalid, Reason::kMixedMessage};
  }
  return {};
}

Verdict Responder::handle_send(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto& info = packet.info();
  if (info.first) {
    if (auto verdict = receives_.take(); !verdict.ok()) return verdict;
    received_ = 0;
    message_ = Message::kSend;
  }
  if (packet.payload_size > receives_.room() - received_) return refuse_length();
  if (goes_with_completion(packet, qp_.options())) {
    std::array<std::byte, kCompletionDataMax> copy;
    const auto data = std::span(copy).first(packet.payload_size);
    frame.copy_range(packet.payload_offset, data);
    received_ = data.size();
    return finish_send(packet, data);
  }
  const auto fault =
      receives_.store(pd_, received_, frame, packet.payload_offset, packet.payload_size);
  if (!engine_.moved(qp_, fault, false)) return receive_fault(fault, packet);
  received_ += packet.payload_size;
  return info.last ? finish_send(packet, {}) : Verdict{};
}

/// The message is longer than its receive request, or than the QP's messages may be. UC drops it,
/// and the request serves the next message (IBTA 9.9.3, a fault of class D).
[[gnu::noinline]] Verdict Responder::refuse_length() {
  const bool reliable = qp_.service().reliable;
  const bool has_room = total_length(receives_.request().sges) > receives_.room();
  const auto reason = has_room ? Reason::kSendTooLong : Reason::kReceiveTooShort;
  ++qp_.counters_->resp_local_length_error;
  if (reliable) receives_.fail(WorkStatus::kLocalLength, reason);
  return {Verdict::Kind::kInvalid, reason, reliable};
}

/// `data`: the payload, if it goes with the completion.
inline Verdict Responder::finish_send(const wire::IbPacket& packet,
                                      std::span<const std::byte> data) {
  const auto& info = packet.info();
  if (info.has(ExtHeader::kIeth)) {
    if (auto v = invalidate(MKey(packet.ext.ieth.rkey.value())); !v.ok()) return v;
  }
  finish_message(packet,
                 info.has(ExtHeader::kImmDt)  ? ReceiveOpcode::kSendWithImmediate
                 : info.has(ExtHeader::kIeth) ? ReceiveOpcode::kSendWithInvalidate
                                              : ReceiveOpcode::kSend,
                 static_cast<std::uint32_t>(received_), data);
  return {};
}

/// IBTA 9.4.1.1: checks that the peer may invalidate the key.
Verdict Responder::invalidate(MKey rkey) {
  using enum Verdict::Kind;
  auto* key = engine_.keys.find(rkey);
  if (key == nullptr) return {kAccess, Reason::kInvalidateUnknown};
  const auto& a = key->attributes();
  if (a.pd != pd_ || (a.only_qpn && *a.only_qpn != qp_.qpn())) {
    return {kAccess, Reason::kInvalidateOther};
  }
  if (a.free) return {kAccess, Reason::kInvalidateTwice};
  if (!a.invalidatable) return {kAccess, Reason::kInvalidateForbidden};
  key->set_free(true);
  return {};
}

[[gnu::always_inline]] inline Verdict Responder::begin_write(const wire::IbPacket& packet) {
  using enum Verdict::Kind;
  const auto& reth = packet.ext.reth;
  const auto mtu = qp_.attributes().path_mtu;
  if (!qp_.attributes().access_flags.remote_write) return {kInvalid, Reason::kWriteForbidden};
  if (reth.dma_length > qp_.attributes().message_max) return {kInvalid, Reason::kWriteTooLong};
  const bool one_packet = reth.dma_length <= mtu;
  if (packet.info().last != one_packet) {
    return {kInvalid, Reason::kWriteLength};
  }
  if (const auto reason = write_.begin(reth, user()); reason != Reason::kNone) {
    return {kAccess, reason};
  }
  ++qp_.counters_->rx_write_requests;
  received_ = 0;
  message_ = Message::kWrite;
  return {};
}

[[gnu::always_inline]] inline Verdict Responder::handle_write(const wire::IbPacket& packet,
                                                              const wire::Frame& frame) {
  using enum Verdict::Kind;
  const auto& info = packet.info();
  const std::uint64_t size = packet.payload_size;
  const bool immediate = info.has(ExtHeader::kImmDt);
  // Take the receive request before any state changes: a packet that finds none is sent again.
  if (immediate) {
    if (auto verdict = receives_.take(); !verdict.ok()) return verdict;
  }
  if (info.first) {
    if (auto verdict = begin_write(packet); !verdict.ok()) return verdict;
  }
  if (info.last ? size != write_.left() : size >= write_.left()) {
    return {kInvalid, Reason::kWriteData};
  }
  if (size != 0) {
    const auto found = write_.find(user(), size);
    if (!found) return write_fault(found.reason, {kAccess, found.reason}, packet);
    const auto fault =
        scatter(engine_.keys, *found.key, write_.address(), frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) {
      return write_fault(fault, Verdict::of_memory(fault), packet);
    }
  }
  write_.advance(size);
  received_ += size;
  if (!info.last) return {};
  if (immediate) {
    finish_message(packet, ReceiveOpcode::kRdmaWriteWithImmediate,
                   static_cast<std::uint32_t>(received_));
  }
  message_ = Message::kNone;
  ++numbers_.msn;
  return {};
}

Verdict Responder::handle_message(const wire::IbPacket& packet, const wire::Frame& frame) {
  if (auto verdict = check_order(packet); !verdict.ok()) return verdict;
  if (auto verdict = check_size(packet, qp_.attributes().path_mtu); !verdict.ok()) return verdict;
  return packet.info().operation == Operation::kSend ? handle_send(packet, frame)
                                                     : handle_write(packet, frame);
}

unsigned Responder::handle_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                   unsigned count) {
  const auto& service = qp_.service();
  // XRC names an SRQ in each packet.
  if (!state_rules(qp_.state()).receives || fatal_ || service.names_srq) return 0;
  if (packet.bth.psn != numbers_.expected || uc_skip_ || waits_for_page()) return 0;
  if (!check_order(packet).ok() || !check_size(packet, qp_.attributes().path_mtu).ok()) return 0;
  if (!take_middles(packet, frame, std::uint64_t{count} * packet.payload_size)) return 0;
  numbers_.expected += count;
  if (service.reliable) {
    silent_ = false;
    answers_.withdraw_nak();  // the NAK requested this packet
    if (frame.train().ack_req_at_end) answers_.acknowledge();
  }
  return count;
}

/// Stores their payload, `size` bytes from that of `packet` on. False if one of them must be
/// refused.
bool Responder::take_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                             std::uint64_t size) {
  if (message_ == Message::kSend) {
    if (size > receives_.room() - received_) return false;
    const auto fault = receives_.store(pd_, received_, frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) return false;
  } else {
    // The Last of a WRITE is not empty, so data must remain for it.
    if (size >= write_.left()) return false;
    const auto found = write_.find(user(), size);
    if (!found) return false;
    const auto fault =
        scatter(engine_.keys, *found.key, write_.address(), frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) return false;
    write_.advance(size);
  }
  received_ += size;
  return true;
}

/// Completes the receive request of this message.
void Responder::finish_message(const wire::IbPacket& packet, ReceiveOpcode opcode,
                               std::uint32_t bytes, std::span<const std::byte> data) {
  ReceiveCompletion completion{};
  completion.opcode = opcode;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = packet.bth.solicited_event;
  completion.byte_count = bytes;
  completion.immediate = opcode == ReceiveOpcode::kSend ? 0
                         : opcode == ReceiveOpcode::kSendWithInvalidate
                             ? packet.ext.ieth.rkey.value()
                             : packet.ext.immdt.data;
  receives_.show_source(packet, completion);
  if (packet.info().operation == Operation::kSend) {
    message_ = Message::kNone;
    ++numbers_.msn;
  }
  if (data.empty()) return receives_.complete(completion);
  receives_.complete_with(completion, data);
}

}  // namespace softhca::rdma
