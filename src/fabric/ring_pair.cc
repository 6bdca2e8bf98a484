#include "fabric/ring_pair.h"

#include <algorithm>

#include "os/memory_faults.h"
#include "wire/train.h"

namespace softhca::fabric {

void RingPair::send(const wire::Frame& frame) {
  if (frame.packets() == 1) return send_record(frame);
  const auto& train = frame.train();
  if (form_ == RecordForm::kWire || train.part != nullptr) {
    return wire::for_each_packet(frame, [this](const auto& packet) { send_record(packet); });
  }
  const auto most =
      std::min(static_cast<unsigned>(kRecordPayloadMax / train.payload), kRecordPacketsMax);
  if (train.packets <= most) return send_record(frame);
  wire::Frame part;
  for (unsigned i = 0; i != train.packets;) {
    const auto count = std::min(most, train.packets - i);
    wire::part(frame, i, count, part);
    send_record(part);
    i += count;
  }
}

void RingPair::send_record(const wire::Frame& frame) {
  if (frame.link() != wire::Link::kEthernet || frame.size() == 0 ||
      frame.size() > os::SharedRing::kRecordMax) {
    counters_.dropped_unfit += frame.packets();
    return;
  }
  if (broken() || !write_record(frame, form_, out_)) {
    counters_.dropped_full += frame.packets();
    return;
  }
  // A fault on memory means that the frame's bytes may be wrong, or that it acknowledges data that
  // did not arrive. The frame counts as lost on the link.
  if (os::MemoryFaults::pending()) {
    out_.abandon();
    counters_.dropped_fault += frame.packets();
    return;
  }
  out_.publish();
  unseen_ = true;
  counters_.sent += frame.packets();
}

bool RingPair::read(std::span<const std::byte> record, wire::Frame& frame) {
  if (read_record(record, in_.note(), form_, frame)) return true;
  ++counters_.dropped_unfit;
  return false;
}

void RingPair::give_back(std::uint64_t released) {
  if (released >= last_.number) {
    checkpoint_ = last_;
  } else if (released < checkpoint_.number) {
    return;
  }
  in_.release(checkpoint_.position);
  checkpoint_ = last_;
}

}  // namespace softhca::fabric
