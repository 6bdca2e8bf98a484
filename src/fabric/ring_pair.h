// Two rings of shared memory between this process and another. Frames are sent into one of them;
// frames received from the other are transmitted by a port.
//
// To a process that has further peers, frames cross as bytes, including their CRCs. Between two end
// processes they may cross in their in-process form (frame_record.h). The rings are the only shared
// memory. A frame is copied into its ring. The receiving process copies its head out, because the
// head must not change while it is interpreted. The rest stays in the ring until the frame is
// delivered; if the sender changes it meanwhile, the changed bytes arrive.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "fabric/frame_record.h"
#include "fabric/port.h"
#include "os/shared_ring.h"

namespace softhca::fabric {

/// The decision about a frame received from a ring.
enum class Verdict : std::uint8_t {
  kGoes,   ///< transmit it
  kTaken,  ///< it was consumed by the caller
  kWaits,  ///< it stays in the ring, as do all behind it
};

class RingPair {
 public:
  /// Bytes of a ring, which has room for some 1000 packets of 4 KiB.
  static constexpr std::size_t kCapacity = std::size_t{4} << 20;

  /// Counters of packets.
  struct Counters {
    std::uint64_t sent = 0;           ///< into the outgoing ring
    std::uint64_t received = 0;       ///< from the incoming ring
    std::uint64_t dropped_full = 0;   ///< the other process does not keep up, or broke the rules
    std::uint64_t dropped_fault = 0;  ///< while os::MemoryFaults::pending()
    /// Longer than a record, from a link other than Ethernet, or malformed.
    std::uint64_t dropped_unfit = 0;
  };

  RingPair(os::SharedRing out, os::SharedRing in, RecordForm form = RecordForm::kWire)
      : out_memory_(std::move(out)), in_memory_(std::move(in)), form_(form) {}
  RingPair(const RingPair&) = delete;
  RingPair& operator=(const RingPair&) = delete;

  /// Sends a packet or a train.
  void send(const wire::Frame& frame);
  /// Transmits about `frames` packets from the other process by `port`, which must always be the
  /// same one. It may exceed `frames` by the rest of a train. Returns the number of packets.
  /// @pre kProcess: port.takes_trains()
  std::size_t receive(Port& port, std::size_t frames) {
    return receive(port, frames, [](const wire::Frame&) { return Verdict::kGoes; });
  }
  /// The same for frames that `judge(frame)` accepts, whose head it may change. The other process
  /// cannot change the head after that, unless the frame waits. `judge` must transmit nothing in
  /// this fabric.
  template <class Judge>
  std::size_t receive(Port& port, std::size_t frames, Judge&& judge) {
    give_back(port.released());
    std::size_t count = 0;
    while (count < frames && !broken()) {
      const auto bytes = in_.next();
      if (bytes.empty()) break;
      auto& frame = port.draft();
      if (!read(bytes, frame)) {
        ++count;
      } else {
        const Verdict verdict = judge(frame);
        if (verdict == Verdict::kWaits) {
          in_.put_back();
          break;
        }
        count += frame.packets();
        if (verdict == Verdict::kGoes) last_.number = port.transmit(frame);
      }
      last_.position = in_.position();
    }
    counters_.received += count;
    return count;
  }
  /// Returns delivered records to the other process. True if that process sleeps and must be woken,
  /// because it has records to read.
  bool settle(const Port& port) {
    give_back(port.released());
    return std::exchange(unseen_, false) && out_.must_wake();
  }
  /// Asks the other process to wake this one for the next frame. False if there is one already.
  bool prepare_to_sleep() { return broken() || in_.prepare_to_sleep(); }

  /// Bytes of room for the other process; reads its index only if fewer than `wanted` were free.
  std::size_t room(std::size_t wanted) { return broken() ? SIZE_MAX : out_.room(wanted); }
  /// True if the other process has delivered everything that was sent.
  bool all_is_taken() { return room(out_memory_.capacity()) >= out_memory_.capacity(); }
  /// To be called from time to time: frees the memory of a ring that has been idle since the last
  /// call.
  void free_idle_pages() {
    const bool is_idle = counters_.sent == idle_.sent;
    if (is_idle && !idle_.freed) out_.free_pages();
    idle_ = {.sent = counters_.sent, .freed = is_idle};
  }
  /// Bytes that the other process has read, as of the last look.
  std::uint64_t taken() const { return out_.taken(); }
  /// True if the other process has broken the rules of a ring: no frames pass any more.
  bool broken() const { return in_.broken() || out_.broken(); }
  const Counters& counters() const { return counters_; }

 private:
  /// When the port has released frame `number`, the ring is free up to `position`.
  struct Mark {
    std::uint64_t number = 0;
    std::uint64_t position = 0;
  };

  void send_record(const wire::Frame& frame);
  bool read(std::span<const std::byte> record, wire::Frame& frame);
  void give_back(std::uint64_t released);

  os::SharedRing out_memory_;
  os::SharedRing in_memory_;
  const RecordForm form_;
  os::RingProducer out_{out_memory_};
  os::RingConsumer in_{in_memory_};
  Mark last_;            ///< of the last frame transmitted
  Mark checkpoint_;      ///< of an earlier frame: in a steady flow the last one is never released
  bool unseen_ = false;  ///< something was sent since the last settle()
  struct Idle {
    std::uint64_t sent = 0;
    bool freed = false;
  };
  Idle idle_;  ///< at the last free_idle_pages()
  Counters counters_;
};

}  // namespace softhca::fabric
