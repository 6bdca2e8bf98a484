// A link to another process: what reaches a port goes into a ring of shared memory, and what comes
// out of another ring is transmitted by the port.
//
// Both ends are of this class; each has a port of a switch of its own process behind it. Frames
// cross as whole frames of bytes, with their CRCs; nobody maps memory of anybody else but the
// rings. A frame is copied into its ring. At the other end its head is copied out, because what the
// head says must not change while we act on it; the rest stays in the ring until the frame is
// delivered, and whatever it becomes meanwhile is what arrives.
#pragma once

#include <cstdint>
#include <memory>

#include "fabric/port.h"
#include "util/shared_ring.h"

namespace softhca::fabric {

class RingPort final : public Receiver {
 public:
  /// Of a ring that has room for some 1000 packets of 4 KiB.
  static constexpr std::size_t kRingCapacity = std::size_t{4} << 20;

  struct Counters {
    std::uint64_t sent = 0;           ///< frames into the ring
    std::uint64_t received = 0;       ///< frames out of the other ring
    std::uint64_t dropped_full = 0;   ///< the other process does not keep up, or broke the rules
    std::uint64_t dropped_fault = 0;  ///< while util::MemoryFaults::pending()
    std::uint64_t dropped_unfit = 0;  ///< longer than a record, or of another link than Ethernet
  };

  /// Becomes the receiver of `port`.
  RingPort(std::unique_ptr<Port> port, util::SharedRing out, util::SharedRing in);
  ~RingPort() override;

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // we loop nothing back

  /// Transmits at most `frames` that have come from the other process. Returns how many there were.
  std::size_t receive(std::size_t frames);
  /// Gives the other process back what is delivered. True if it sleeps and is to be woken, because
  /// there is something for it.
  bool settle();
  /// Asks to be woken for the next frame. False if there is one already.
  bool prepare_to_sleep() { return broken() || in_.prepare_to_sleep(); }

  /// The other process has broken the rules of a ring: nothing comes and goes here any more.
  bool broken() const { return in_.broken() || out_.broken(); }
  const Counters& counters() const { return counters_; }

 private:
  /// When the port has released frame `number`, the ring may be used up to `position`.
  struct Mark {
    std::uint64_t number = 0;
    std::uint64_t position = 0;
  };

  void give_back();

  util::SharedRing out_memory_;
  util::SharedRing in_memory_;
  util::RingProducer out_{out_memory_};
  util::RingConsumer in_{in_memory_};
  Mark last_;        ///< of the last frame that was transmitted
  Mark checkpoint_;  ///< of an earlier one: while frames never stop to flow, the last is never out
  bool unseen_ = false;  ///< something was sent since the last settle()
  Counters counters_;
  std::unique_ptr<Port> port_;  ///< goes first: its frames refer to the ring
};

}  // namespace softhca::fabric
