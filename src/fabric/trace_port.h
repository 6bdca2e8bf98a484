// A port that notes each packet that a device sends and receives in its trace.
#pragma once

#include "fabric/port.h"
#include "util/trace.h"

namespace softhca::fabric {

class TracePort final : public Port, private Receiver {
 public:
  /// @pre both outlive this
  TracePort(Port& below, util::Trace& trace)
      : Port(below.shortcuts()), below_(below), trace_(trace) {}

  std::uint64_t transmit(const wire::Frame& frame) override;
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override;
  std::uint64_t released() const override { return below_.released(); }
  std::int64_t settle() override { return below_.settle(); }
  void set_receiver(Receiver* receiver) override;
  bool link_up() const override { return below_.link_up(); }

 private:
  wire::Frame& make_draft() override { return below_.draft(); }
  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override;
  bool handle_no_memory() override { return receiver_->handle_no_memory(); }

  void note(util::TraceStep step, const wire::Frame& frame);

  Port& below_;
  util::Trace& trace_;
  Receiver* receiver_ = nullptr;
};

}  // namespace softhca::fabric
