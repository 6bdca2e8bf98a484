#include "fabric/trace_port.h"

#include "wire/ib_packet.h"

namespace softhca::fabric {

void TracePort::note(util::TraceStep step, const wire::Frame& frame) {
  const auto packet = wire::IbPacket::parse(frame);
  if (!packet) {
    const bool other = packet.error() == wire::PacketError::kOther;
    return trace_.note(step, other ? "Ethernet" : wire::to_string(packet.error()),
                       {{"bytes", frame.size()}});
  }
  trace_.note(step, packet->info().name,
              {{"bytes", frame.size()},
               {"opcode", static_cast<std::uint8_t>(packet->bth.opcode)},
               {"dest_qp", packet->bth.dest_qp.value()},
               {"psn", packet->bth.psn.value()},
               {"payload", packet->payload_size}});
}

std::uint64_t TracePort::transmit(const wire::Frame& frame) {
  note(util::TraceStep::kPacketOut, frame);
  return below_.transmit(frame);
}

std::uint64_t TracePort::loop_back(const wire::Frame& frame, std::uint32_t mark) {
  note(util::TraceStep::kPacketOut, frame);
  return below_.loop_back(frame, mark);
}

void TracePort::set_receiver(Receiver* receiver) {
  receiver_ = receiver;
  below_.set_receiver(receiver == nullptr ? nullptr : this);
}

void TracePort::handle_frame(const wire::Frame& frame) {
  note(util::TraceStep::kPacketIn, frame);
  receiver_->handle_frame(frame);
}

void TracePort::handle_loopback(const wire::Frame& frame, std::uint32_t mark) {
  note(util::TraceStep::kPacketIn, frame);
  receiver_->handle_loopback(frame, mark);
}

}  // namespace softhca::fabric
