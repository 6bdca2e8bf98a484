#include "connectx/qp/wqe_reader.h"

namespace softhca::connectx {

WqeFault WqeReader::read_send(Qpn qpn, const hca::WorkRing& ring, hca::QueueMemory& memory,
                              std::uint32_t available, SendWqeControl& control,
                              std::span<const std::byte>& wqe) {
  const auto copy = std::span(send_wqe_);
  if (!blue_flame_.empty()) [[unlikely]] {
    const auto size = blue_flame_.take(qpn, ring.consumed(), copy);
    control = SendWqeControl::parse(copy);
    if (size != 0 && control.basic_blocks() <= available) {
      wqe = copy.first(size);
      return WqeFault::kNone;
    }
  }
  const auto first = copy.first(kWqeBasicBlock);
  if (!ring.read(memory, 0, first)) return WqeFault::kNone;
  control = SendWqeControl::parse(first);
  if (control.units == 0) return WqeFault::kSizeZero;
  if (control.basic_blocks() > available) return WqeFault::kPastPosted;
  const auto size = control.units * kWqeUnit;
  if (size > kWqeBasicBlock) {
    const auto rest = copy.subspan(kWqeBasicBlock, size - kWqeBasicBlock);
    if (!ring.read(memory, 1, rest)) return WqeFault::kNone;
  }
  wqe = copy.first(size);
  return WqeFault::kNone;
}

[[gnu::noinline]] const std::byte* WqeReader::read_datagram(const hca::WorkRing& ring,
                                                            hca::QueueMemory& memory,
                                                            std::size_t size) {
  const auto copy = std::span(send_wqe_).first(size);
  const bool read = trace_ == nullptr && ring.read(memory, 0, copy);
  return read ? copy.data() : nullptr;
}

void WqeReader::add_to_trace(Qpn qpn, std::uint16_t index, const SendWqeControl& control,
                             WqeFault fault) {
  trace_->note(util::TraceStep::kSendWqe, to_string(control.opcode),
               {{"qpn", qpn.value()},
                {"index", index},
                {"bytes", control.units * kWqeUnit},
                {"fault", static_cast<std::uint32_t>(fault)}});
}

void WqeReader::note_fault(Qpn qpn, WqeFault fault) {
  const auto& info = describe(fault);
  notes_.info("QP {:#x}: malformed send WQE: {} ({}, reason {})", qpn.value(), info.text,
              info.section, static_cast<unsigned>(reason_of(fault)));
}

}  // namespace softhca::connectx
