// A link to another process: rings of shared memory with a port. Frames that reach the port go into
// the outgoing ring; frames from the incoming ring are transmitted by the port. Both ends are of
// this class, each with a port of a switch in its own process.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "fabric/port.h"
#include "fabric/ring_pair.h"

namespace softhca::fabric {

class RingPort final : public RingPair, public Receiver {
 public:
  /// Becomes the receiver of `port`. @pre kProcess: the port takes trains
  RingPort(std::unique_ptr<Port> port, os::SharedRing out, os::SharedRing in,
           RecordForm form = RecordForm::kWire)
      : RingPair(std::move(out), std::move(in), form), port_(std::move(port)) {
    port_->set_receiver(this);
  }
  ~RingPort() override { port_->set_receiver(nullptr); }

  void handle_frame(const wire::Frame& frame) override { send(frame); }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {
  }  // this port loops nothing back

  // RingPair's, with the port.
  std::size_t receive(std::size_t frames) { return RingPair::receive(*port_, frames); }
  template <class Judge>
  std::size_t receive(std::size_t frames, Judge&& judge) {
    return RingPair::receive(*port_, frames, std::forward<Judge>(judge));
  }
  bool settle() { return RingPair::settle(*port_); }

 private:
  std::unique_ptr<Port> port_;  ///< destroyed before the rings, which its frames refer to
};

}  // namespace softhca::fabric
