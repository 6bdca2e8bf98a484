// A port in front of the device's that loses what arrives while memory faults are pending
// (util/memory_faults.h): nothing is acknowledged that did not reach memory, and nothing arrives
// that was not read from it. Its link is down once the hub has gone.
#pragma once

#include "fabric/passing_port.h"
#include "util/memory_faults.h"

namespace softhca::door {

class FaultPort final : public fabric::PassingPort {
 public:
  using PassingPort::PassingPort;

  void lose_link() { link_ = false; }
  bool link_up() const override { return link_ && PassingPort::link_up(); }

 private:
  void arrive(const wire::Frame& frame, fabric::Receiver& to) override {
    if (!util::MemoryFaults::pending()) to.handle_frame(frame);
  }
  void arrive_looped(const wire::Frame& frame, std::uint32_t mark, fabric::Receiver& to) override {
    if (!util::MemoryFaults::pending()) to.handle_loopback(frame, mark);
  }

  bool link_ = true;
};

}  // namespace softhca::door
