// A port in front of the device's that loses what arrives while memory faults are pending
// (util/memory_faults.h): nothing is acknowledged that did not reach memory, and nothing arrives
// that was not read from it.
#pragma once

#include "fabric/port.h"

namespace softhca::door {

class FaultPort final : public fabric::Port {
 public:
  /// @pre `below` outlives this
  explicit FaultPort(fabric::Port& below) : Port(below.shortcuts()), below_(below) {}

  std::uint64_t transmit(const wire::Frame& frame) override { return below_.transmit(frame); }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return below_.loop_back(frame, mark);
  }
  std::uint64_t released() const override { return below_.released(); }
  std::int64_t settle() override { return below_.settle(); }
  void set_receiver(fabric::Receiver* receiver) override;
  bool takes_trains() const override { return below_.takes_trains(); }
  bool link_up() const override { return below_.link_up(); }

 private:
  /// In front of the device.
  class Filter final : public fabric::Receiver {
   public:
    void handle_frame(const wire::Frame& frame) override;
    void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override;
    bool handle_no_memory() override { return behind->handle_no_memory(); }
    bool takes_trains() const override { return behind->takes_trains(); }
    fabric::Receiver* behind = nullptr;
  };

  wire::Frame& make_draft() override { return below_.draft(); }

  fabric::Port& below_;
  Filter filter_;
};

}  // namespace softhca::door
