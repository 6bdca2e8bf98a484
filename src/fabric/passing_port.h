// A port in front of another that passes everything on. Ports that change some of it derive from
// it, and override what they change.
#pragma once

#include "fabric/port.h"

namespace softhca::fabric {

class PassingPort : public Port {
 public:
  /// @pre `below` outlives this
  explicit PassingPort(Port& below) : Port(below.shortcuts()), below_(below) {}

  std::uint64_t transmit(const wire::Frame& frame) override { return below_.transmit(frame); }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return below_.loop_back(frame, mark);
  }
  std::uint64_t released() const override { return below_.released(); }
  std::int64_t settle() override { return below_.settle(); }
  void set_receiver(Receiver* receiver) override {
    arrivals_.to = receiver;
    below_.set_receiver(receiver == nullptr ? nullptr : &arrivals_);
  }
  bool takes_trains() const override { return below_.takes_trains(); }
  bool link_up() const override { return below_.link_up(); }

 protected:
  Port& below() { return below_; }
  /// Called for an arriving frame; `to` is the receiver of this port.
  virtual void arrive(const wire::Frame& frame, Receiver& to) { to.handle_frame(frame); }
  virtual void arrive_looped(const wire::Frame& frame, std::uint32_t mark, Receiver& to) {
    to.handle_loopback(frame, mark);
  }

 private:
  class Arrivals final : public Receiver {
   public:
    explicit Arrivals(PassingPort& owner) : owner_(owner) {}
    void handle_frame(const wire::Frame& frame) override { owner_.arrive(frame, *to); }
    void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override {
      owner_.arrive_looped(frame, mark, *to);
    }
    bool handle_no_memory() override { return to->handle_no_memory(); }
    bool takes_trains() const override { return to->takes_trains(); }
    void handle_cost(std::int64_t units) override { to->handle_cost(units); }
    Receiver* to = nullptr;

   private:
    PassingPort& owner_;
  };

  wire::Frame& make_draft() override { return below_.draft(); }

  Port& below_;
  Arrivals arrivals_{*this};
};

}  // namespace softhca::fabric
