#include "fabric/ring_port.h"

#include <utility>

#include "util/memory_faults.h"

namespace softhca::fabric {

RingPort::RingPort(std::unique_ptr<Port> port, util::SharedRing out, util::SharedRing in)
    : out_memory_(std::move(out)), in_memory_(std::move(in)), port_(std::move(port)) {
  port_->set_receiver(this);
}

RingPort::~RingPort() { port_->set_receiver(nullptr); }

void RingPort::handle_frame(const wire::Frame& frame) {
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

std::size_t RingPort::receive(std::size_t frames) {
  give_back();
  std::size_t count = 0;
  for (; count != frames && !broken(); ++count) {
    const auto bytes = in_.next();
    if (bytes.empty()) break;
    last_.number = port_->transmit(wire::Frame::from_bytes(bytes));
    last_.position = in_.position();
  }
  counters_.received += count;
  return count;
}

void RingPort::give_back() {
  const auto released = port_->released();
  if (released >= last_.number) {
    checkpoint_ = last_;
  } else if (released < checkpoint_.number) {
    return;
  }
  in_.release(checkpoint_.position);
  checkpoint_ = last_;
}

bool RingPort::settle() {
  give_back();
  return std::exchange(unseen_, false) && out_.must_wake();
}

}  // namespace softhca::fabric
