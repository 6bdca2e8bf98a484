#include "rdma/message_receiver.h"

#include <array>

#include "rdma/receive_queue_inl.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using wire::ExtHeader;
using wire::Operation;

namespace {

/// IBTA 9.7.4.1: all packets but the last have path MTU bytes; a last one is not empty.
[[gnu::always_inline]] inline RequestOutcome check_size(const wire::IbPacket& packet,
                                                        std::uint32_t mtu) {
  const auto& info = packet.info();
  const auto size = packet.payload_size;
  const bool right = info.last ? size <= mtu && (info.first || size != 0) : size == mtu;
  return right ? RequestOutcome{}
               : RequestOutcome{RequestOutcome::Kind::kInvalid, Reason::kPacketSize};
}

/// True if the device takes the whole message with the completion.
bool goes_with_completion(const wire::IbPacket& packet, const QpOptions& options) {
  // For an empty message the difference wraps, which yields false.
  const std::uint32_t size = packet.payload_size;
  return size - 1 < options.completion_data.of_sends && packet.info().only();
}

}  // namespace

MessageReceiver::MessageReceiver(Engine& engine, QueuePair& qp, ResponderFault& fault)
    : engine_(engine), qp_(qp), fault_(fault), write_(engine.keys), receives_(engine, qp) {}

void MessageReceiver::reset() {
  kind_ = Kind::kNone;
  received_ = 0;
  receives_.reset();
}

void MessageReceiver::forget_lost_receive() {
  if (receives_.forget_lost()) kind_ = Kind::kNone;
}

/// IBTA Annex A14: every XRC request names an SRQ of the target's domain. The PD of that SRQ
/// replaces the QP's.
RequestOutcome MessageReceiver::select_srq(const wire::IbPacket& packet) {
  forget_lost_receive();
  const auto* srq = receives_.select(packet.ext.xrceth.xrc_srq);
  if (srq == nullptr) return {RequestOutcome::Kind::kInvalid, Reason::kXrcSrqUnknown};
  if (srq->domain != qp_.options().xrc_domain) {
    return {RequestOutcome::Kind::kInvalid, Reason::kXrcSrqOfOtherDomain};
  }
  pd_ = srq->pd;
  return {};
}

/// IBTA 9.7.4.1: a message begins with First or Only, and only packets of the same kind follow
/// until its Last.
[[gnu::always_inline]] inline RequestOutcome MessageReceiver::check_order(
    const wire::IbPacket& packet) const {
  const auto& info = packet.info();
  if (info.first != (kind_ == Kind::kNone)) {
    return {RequestOutcome::Kind::kInvalid,
            info.first ? Reason::kMessageInMessage : Reason::kMiddleOfNothing};
  }
  if (!info.first && (info.operation == Operation::kSend) != (kind_ == Kind::kSend)) {
    return {RequestOutcome::Kind::kInvalid, Reason::kMixedMessage};
  }
  return {};
}

RequestOutcome MessageReceiver::handle_send(const wire::IbPacket& packet, const wire::Frame& frame,
                                            wire::Msn& msn) {
  const auto& info = packet.info();
  if (info.first) {
    if (auto outcome = receives_.take(); !outcome.ok()) return outcome;
    received_ = 0;
    kind_ = Kind::kSend;
  }
  if (packet.payload_size > receives_.room() - received_) return refuse_length();
  if (goes_with_completion(packet, qp_.options())) {
    std::array<std::byte, kCompletionDataMax> copy;
    const auto data = std::span(copy).first(packet.payload_size);
    frame.copy_range(packet.payload_offset, data);
    received_ = data.size();
    return finish_send(packet, data, msn);
  }
  const auto fault =
      receives_.store(pd_, received_, frame, packet.payload_offset, packet.payload_size);
  if (!engine_.moved(qp_, fault, false)) return receive_fault(fault, packet);
  received_ += packet.payload_size;
  return info.last ? finish_send(packet, {}, msn) : RequestOutcome{};
}

/// The message is longer than its receive request, or than the QP's messages may be. UC drops it,
/// and the request serves the next message (IBTA 9.9.3, a fault of class D).
[[gnu::noinline]] RequestOutcome MessageReceiver::refuse_length() {
  const bool reliable = qp_.service().reliable;
  const bool has_room = total_length(receives_.request().sges) > receives_.room();
  const auto reason = has_room ? Reason::kSendTooLong : Reason::kReceiveTooShort;
  ++qp_.counters().resp_local_length_error;
  if (reliable) receives_.fail(WorkStatus::kLocalLength, reason);
  return {RequestOutcome::Kind::kInvalid, reason, reliable};
}

/// `data`: the payload, if it goes with the completion.
inline RequestOutcome MessageReceiver::finish_send(const wire::IbPacket& packet,
                                                   std::span<const std::byte> data,
                                                   wire::Msn& msn) {
  const auto& info = packet.info();
  if (info.has(ExtHeader::kIeth)) {
    if (auto v = invalidate(MKey(packet.ext.ieth.rkey.value())); !v.ok()) return v;
  }
  kind_ = Kind::kNone;
  ++msn;
  complete(packet,
           info.has(ExtHeader::kImmDt)  ? ReceiveOpcode::kSendWithImmediate
           : info.has(ExtHeader::kIeth) ? ReceiveOpcode::kSendWithInvalidate
                                        : ReceiveOpcode::kSend,
           data);
  return {};
}

/// IBTA 9.4.1.1: checks that the peer may invalidate the key.
RequestOutcome MessageReceiver::invalidate(MKey rkey) {
  using enum RequestOutcome::Kind;
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

[[gnu::always_inline]] inline RequestOutcome MessageReceiver::begin_write(
    const wire::IbPacket& packet) {
  using enum RequestOutcome::Kind;
  const auto& reth = packet.ext.reth;
  const auto mtu = qp_.attributes().path_mtu;
  if (!qp_.attributes().access_flags.remote_write) return {kInvalid, Reason::kWriteForbidden};
  if (reth.dma_length > qp_.attributes().message_max) return {kInvalid, Reason::kWriteTooLong};
  const bool one_packet = reth.dma_length <= mtu;
  if (packet.info().last != one_packet) {
    return {kInvalid, Reason::kWriteLength};
  }
  if (const auto reason = write_.begin(reth, peer()); reason != Reason::kNone) {
    return {kAccess, reason};
  }
  ++qp_.counters().rx_write_requests;
  received_ = 0;
  kind_ = Kind::kWrite;
  return {};
}

[[gnu::always_inline]] inline RequestOutcome MessageReceiver::handle_write(
    const wire::IbPacket& packet, const wire::Frame& frame, wire::Msn& msn) {
  using enum RequestOutcome::Kind;
  const auto& info = packet.info();
  const std::uint64_t size = packet.payload_size;
  const bool immediate = info.has(ExtHeader::kImmDt);
  // Take the receive request before any state changes: a packet that finds none is sent again.
  if (immediate) {
    if (auto outcome = receives_.take(); !outcome.ok()) return outcome;
  }
  if (info.first) {
    if (auto outcome = begin_write(packet); !outcome.ok()) return outcome;
  }
  if (info.last ? size != write_.left() : size >= write_.left()) {
    return {kInvalid, Reason::kWriteData};
  }
  if (size != 0) {
    const auto found = write_.find(peer(), size);
    if (!found) return write_fault(found.reason, {kAccess, found.reason}, packet);
    const auto fault =
        scatter(engine_.keys, *found.key, write_.address(), frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) {
      return write_fault(fault, RequestOutcome::of_memory(fault), packet);
    }
  }
  write_.advance(size);
  received_ += size;
  if (!info.last) return {};
  if (immediate) complete(packet, ReceiveOpcode::kRdmaWriteWithImmediate);
  kind_ = Kind::kNone;
  ++msn;
  return {};
}

RequestOutcome MessageReceiver::handle(const wire::IbPacket& packet, const wire::Frame& frame,
                                       wire::Msn& msn) {
  if (auto outcome = check_order(packet); !outcome.ok()) return outcome;
  if (auto outcome = check_size(packet, qp_.attributes().path_mtu); !outcome.ok()) return outcome;
  return packet.info().operation == Operation::kSend ? handle_send(packet, frame, msn)
                                                     : handle_write(packet, frame, msn);
}

bool MessageReceiver::handle_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                     unsigned count) {
  return check_order(packet).ok() && check_size(packet, qp_.attributes().path_mtu).ok() &&
         store_middles(packet, frame, std::uint64_t{count} * packet.payload_size);
}

/// Stores their payload, `size` bytes from that of `packet` on. False if one of them must be
/// refused.
bool MessageReceiver::store_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                    std::uint64_t size) {
  if (kind_ == Kind::kSend) {
    if (size > receives_.room() - received_) return false;
    const auto fault = receives_.store(pd_, received_, frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) return false;
  } else {
    // The Last of a WRITE is not empty, so data must remain for it.
    if (size >= write_.left()) return false;
    const auto found = write_.find(peer(), size);
    if (!found) return false;
    const auto fault =
        scatter(engine_.keys, *found.key, write_.address(), frame, packet.payload_offset, size);
    if (!engine_.moved(qp_, fault, false)) return false;
    write_.advance(size);
  }
  received_ += size;
  return true;
}

/// Completes the receive request of this message. `data`: its payload, if it goes with the
/// completion.
[[gnu::noinline]] void MessageReceiver::complete(const wire::IbPacket& packet, ReceiveOpcode opcode,
                                                 std::span<const std::byte> data) {
  ReceiveCompletion completion{};
  completion.opcode = opcode;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = packet.bth.solicited_event;
  completion.byte_count = static_cast<std::uint32_t>(received_);
  completion.immediate = opcode == ReceiveOpcode::kSend ? 0
                         : opcode == ReceiveOpcode::kSendWithInvalidate
                             ? packet.ext.ieth.rkey.value()
                             : packet.ext.immdt.data;
  receives_.show_source(packet, completion);
  if (data.empty()) return receives_.complete(completion);
  receives_.complete_with(completion, data);
}

/// `fault` in the receive request of this message.
[[gnu::noinline]] RequestOutcome MessageReceiver::receive_fault(Reason fault,
                                                                const wire::IbPacket& packet) {
  const auto outcome = fault_.hold_receive(receives_, fault, received_, packet.payload_size);
  if (!outcome.completed && packet.info().first) kind_ = Kind::kNone;
  return outcome;
}

/// The same for the memory behind a WRITE's R_Key.
[[gnu::noinline]] RequestOutcome MessageReceiver::write_fault(Reason fault,
                                                              const RequestOutcome& otherwise,
                                                              const wire::IbPacket& packet) {
  if (fault != Reason::kPageAbsent) return otherwise;
  const auto outcome =
      fault_.hold({.kind = PageFaultKind::kRemoteWrite,
                   .committed = static_cast<std::uint32_t>(received_),
                   .packet_length = static_cast<std::uint32_t>(packet.payload_size),
                   .rkey = write_.rkey(),
                   .address = write_.address() - received_,
                   .length = static_cast<std::uint32_t>(received_ + write_.left())},
                  otherwise);
  if (packet.info().first) {
    kind_ = Kind::kNone;
    --qp_.counters().rx_write_requests;
  }
  return outcome;
}

}  // namespace softhca::rdma
