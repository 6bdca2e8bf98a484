// The two rings of shared memory between this process and another: frames that go into one of them,
// and frames that come out of the other and are transmitted by a port.
//
// To a process that has others behind it, frames cross as whole frames of bytes, with their CRCs;
// between two ends they may cross as they are inside a process (frame_record.h). Nobody maps memory
// of anybody else but the rings. A frame is copied into its ring. At the other end its head is
// copied out, because what the head says must not change while we act on it; the rest stays in the
// ring until the frame is delivered, and whatever it becomes meanwhile is what arrives.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "fabric/frame_record.h"
#include "fabric/port.h"
#include "util/shared_ring.h"

namespace softhca::fabric {

/// What becomes of a frame that has come out of a ring.
enum class Verdict : std::uint8_t {
  kGoes,   ///< it is transmitted
  kTaken,  ///< it was for who looked at it
  kWaits,  ///< it stays, and so do all behind it
};

class RingPair {
 public:
  /// Of a ring that has room for some 1000 packets of 4 KiB.
  static constexpr std::size_t kCapacity = std::size_t{4} << 20;

  /// Of packets.
  struct Counters {
    std::uint64_t sent = 0;           ///< into the ring
    std::uint64_t received = 0;       ///< out of the other ring
    std::uint64_t dropped_full = 0;   ///< the other process does not keep up, or broke the rules
    std::uint64_t dropped_fault = 0;  ///< while util::MemoryFaults::pending()
    /// Longer than a record, of another link than Ethernet, or no frame at all.
    std::uint64_t dropped_unfit = 0;
  };

  RingPair(util::SharedRing out, util::SharedRing in, RecordForm form = RecordForm::kWire)
      : out_memory_(std::move(out)), in_memory_(std::move(in)), form_(form) {}
  RingPair(const RingPair&) = delete;
  RingPair& operator=(const RingPair&) = delete;

  /// A packet or a train.
  void send(const wire::Frame& frame);
  /// Transmits by `port`, always the same one, some `frames` packets that have come from the other
  /// process: what is left of the last train is no reason to stop. Returns how many there were.
  /// @pre kProcess: port.takes_trains()
  std::size_t receive(Port& port, std::size_t frames) {
    return receive(port, frames, [](const wire::Frame&) { return Verdict::kGoes; });
  }
  /// The same with those for which `judge(frame)` says so. Their head does not change any more,
  /// whatever the other process does, unless they wait. `judge` transmits nothing in this fabric.
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
        const Verdict verdict = judge(std::as_const(frame));
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
  /// Gives the other process back what is delivered. True if it sleeps and is to be woken, because
  /// there is something for it.
  bool settle(const Port& port) {
    give_back(port.released());
    return std::exchange(unseen_, false) && out_.must_wake();
  }
  /// Asks to be woken for the next frame. False if there is one already.
  bool prepare_to_sleep() { return broken() || in_.prepare_to_sleep(); }

  /// Bytes that the other process has room for, looked at anew where they were fewer than `wanted`.
  std::size_t room(std::size_t wanted) { return broken() ? SIZE_MAX : out_.room(wanted); }
  /// The other process has delivered all that was sent.
  bool all_is_taken() { return room(out_memory_.capacity()) >= out_memory_.capacity(); }
  /// Once in a while: a ring into which nothing was sent since the last time needs no memory.
  void free_idle_pages() {
    const bool is_idle = counters_.sent == idle_.sent;
    if (is_idle && !idle_.freed) out_.free_pages();
    idle_ = {.sent = counters_.sent, .freed = is_idle};
  }
  /// What it has taken so far, at the last look.
  std::uint64_t taken() const { return out_.taken(); }
  /// The other process has broken the rules of a ring: nothing comes and goes here any more.
  bool broken() const { return in_.broken() || out_.broken(); }
  const Counters& counters() const { return counters_; }

 private:
  /// When the port has released frame `number`, the ring may be used up to `position`.
  struct Mark {
    std::uint64_t number = 0;
    std::uint64_t position = 0;
  };

  void send_record(const wire::Frame& frame);
  bool read(std::span<const std::byte> record, wire::Frame& frame);
  void give_back(std::uint64_t released);

  util::SharedRing out_memory_;
  util::SharedRing in_memory_;
  const RecordForm form_;
  util::RingProducer out_{out_memory_};
  util::RingConsumer in_{in_memory_};
  Mark last_;        ///< of the last frame that was transmitted
  Mark checkpoint_;  ///< of an earlier one: while frames never stop to flow, the last is never out
  bool unseen_ = false;  ///< something was sent since the last settle()
  struct Idle {
    std::uint64_t sent = 0;
    bool freed = false;
  };
  Idle idle_;  ///< at the last free_idle_pages()
  Counters counters_;
};

}  // namespace softhca::fabric
