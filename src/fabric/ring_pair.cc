#include "fabric/ring_pair.h"

#include "util/memory_faults.h"

namespace softhca::fabric {

void RingPair::send(const wire::Frame& frame) {
  if (frame.link() != wire::Link::kEthernet || frame.size() == 0 ||
      frame.size() > util::SharedRing::kRecordMax) {
    ++counters_.dropped_unfit;
    return;
  }
  const auto room = broken() ? std::span<std::byte>() : out_.reserve(frame.size());
  if (room.empty()) {
    ++counters_.dropped_full;
    return;
  }
  frame.copy_to(room);
  // What it refers to was not there, or what it acknowledges did not arrive: it is lost on its way.
  if (util::MemoryFaults::pending()) {
    ++counters_.dropped_fault;
    return;
  }
  out_.publish();
  unseen_ = true;
  ++counters_.sent;
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
