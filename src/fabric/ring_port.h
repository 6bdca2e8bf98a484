// A link to another process: frames that reach the port go into a ring of shared memory; frames
// from another ring are transmitted by the port. Both ends are of this class, each with a port of a
// switch in its own process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "fabric/port.h"
#include "fabric/ring_pair.h"

namespace softhca::fabric {

class RingPort final : public Receiver {
 public:
  static constexpr std::size_t kRingCapacity = RingPair::kCapacity;

  /// Becomes the receiver of `port`. @pre kProcess: the port takes trains
  RingPort(std::unique_ptr<Port> port, os::SharedRing out, os::SharedRing in,
           RecordForm form = RecordForm::kWire)
      : rings_(std::move(out), std::move(in), form), port_(std::move(port)) {
    port_->set_receiver(this);
  }
  ~RingPort() override { port_->set_receiver(nullptr); }

  void handle_frame(const wire::Frame& frame) override { rings_.send(frame); }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {
  }  // this port loops nothing back

  // Same as RingPair's.
  std::size_t receive(std::size_t frames) { return rings_.receive(*port_, frames); }
  template <class Judge>
  std::size_t receive(std::size_t frames, Judge&& judge) {
    return rings_.receive(*port_, frames, std::forward<Judge>(judge));
  }
  std::size_t room(std::size_t wanted) { return rings_.room(wanted); }
  std::uint64_t taken() const { return rings_.taken(); }
  bool settle() { return rings_.settle(*port_); }
  bool prepare_to_sleep() { return rings_.prepare_to_sleep(); }
  bool broken() const { return rings_.broken(); }
  const RingPair::Counters& counters() const { return rings_.counters(); }

 private:
  RingPair rings_;
  std::unique_ptr<Port> port_;  ///< destroyed first: its frames refer to the ring
};

}  // namespace softhca::fabric
