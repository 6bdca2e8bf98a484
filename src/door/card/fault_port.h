// A port in front of the device's that drops arriving frames while memory faults are pending
// (os/memory_faults.h). So the device never acknowledges data that did not reach memory, and
// never receives data that were not read from it. Its link is down once the hub has gone.
#pragma once

#include <atomic>
#include <cstddef>

#include "door/memory/pages.h"
#include "fabric/passing_port.h"
#include "os/memory_faults.h"

namespace softhca::door {

class FaultPort final : public fabric::PassingPort {
 public:
  using PassingPort::PassingPort;

  void lose_link() { link_ = false; }
  bool link_up() const override { return link_ && PassingPort::link_up(); }

 private:
  void arrive(const wire::Frame& frame, fabric::Receiver& to) override {
    if (is_there(frame)) to.handle_frame(frame);
  }
  void arrive_looped(const wire::Frame& frame, std::uint32_t mark, fabric::Receiver& to) override {
    if (is_there(frame)) to.handle_loopback(frame, mark);
  }

  /// Touches memory that the frame refers to, page by page, so that faults occur here rather than
  /// in the middle of receive processing.
  static bool is_there(const wire::Frame& frame) {
    for (const auto segment : frame.segments()) {
      if (segment.empty()) continue;
      const volatile std::byte* const bytes = segment.data();
      for (std::size_t i = 0; i < segment.size(); i += kPage) (void)bytes[i];
      (void)bytes[segment.size() - 1];
    }
    std::atomic_signal_fence(std::memory_order_acquire);
    return !os::MemoryFaults::pending();
  }

  bool link_ = true;
};

}  // namespace softhca::door
