// A link that loses, duplicates, reorders and delays what is sent on it: by seed, or by script.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "fabric/port.h"
#include "util/clock.h"

namespace softhca::fabric {

/// A port in front of another; only the transmit side is impaired. The same seed, frames and
/// times give the same result, on every platform.
///
/// A verb is transmit(); time comes in through handle_timeout(), which must be called no later than
/// next_event() says.
class Impairment final : public Port {
 public:
  struct Options {
    std::uint64_t seed = 1;
    double loss = 0;       ///< probability, of each frame
    double duplicate = 0;  ///< probability, of each frame that is not lost
    double reorder = 0;    ///< probability, of each copy
    /// A reordered frame lets 1 to so many later ones pass, but waits no longer than reorder_hold.
    unsigned reorder_distance = 3;
    util::Duration reorder_hold = std::chrono::microseconds(100);
    /// Each frame takes delay and up to jitter more; that alone reorders nothing.
    util::Duration delay{0};
    util::Duration jitter{0};
  };
  struct Counters {
    std::uint64_t transmitted = 0;  ///< given to us
    std::uint64_t lost = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t reordered = 0;
    std::uint64_t scripted = 0;  ///< faults of the script that fired
    std::uint64_t forwarded = 0;
  };

  enum class Action : std::uint8_t { kDrop, kDuplicate, kReorder };
  /// Frames that match are counted from 1; the nth and the count - 1 after it suffer `action`.
  struct Fault {
    std::function<bool(const wire::Frame&)> match;  ///< empty: every frame
    std::uint64_t nth = 1;
    std::uint64_t count = 1;
    Action action = Action::kDrop;
  };

  /// @pre `below` outlives this
  Impairment(Port& below, const Options& options);

  std::uint64_t transmit(const wire::Frame& frame) override;
  /// Not impaired: it does not cross the link.
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override;
  std::uint64_t released() const override;
  std::int64_t settle() override { return below_.settle(); }  // what is held here owns its payload
  void set_receiver(Receiver* receiver) override { below_.set_receiver(receiver); }
  bool link_up() const override { return below_.link_up(); }

  void add_fault(Fault fault) { faults_.push_back({std::move(fault), 0}); }
  /// Drops the nth frame from now on.
  void drop_nth(std::uint64_t nth) { add_fault({.match = {}, .nth = nth}); }
  /// How many faults have not fired to the end: a test that injects one asserts that it is gone.
  std::size_t faults_pending() const { return faults_.size(); }

  /// Forwards what is due at `now`, which does not go back.
  void handle_timeout(util::Time now);
  /// When handle_timeout() has something to do.
  util::Time next_event() const;

  const Counters& counters() const { return counters_; }

 private:
  struct PendingFault {
    Fault fault;
    std::uint64_t seen = 0;
  };
  struct Held {
    wire::Frame frame;  ///< owns its payload: the sender's memory does not wait
    util::Time due;
    unsigned passes_left;  ///< later frames to let pass; 0: only time counts
  };
  struct Fate {
    bool drop = false;
    bool duplicate = false;
    bool reorder = false;
  };

  void count();
  bool chance(double probability);
  Fate decide(const wire::Frame& frame);
  void apply_faults(const wire::Frame& frame, Fate& fate);
  void send(const wire::Frame& frame, bool reorder);
  void hold(const wire::Frame& frame, util::Time due, unsigned passes);
  void forward(const wire::Frame& frame);

  Port& below_;
  /// When the port below has released `below`, this one has released `own`.
  struct Mark {
    std::uint64_t own = 0;
    std::uint64_t below = 0;
  };
  const Options options_;
  std::mt19937_64 random_;
  std::vector<PendingFault> faults_;
  std::vector<Held> held_;  ///< in the order of transmission
  util::Time now_{};
  util::Time last_due_{};
  Counters counters_;
  Mark last_;        ///< of the last frame that was sent on
  Mark checkpoint_;  ///< of an earlier one: while frames never stop to flow, the last is never out
  std::uint64_t released_ = 0;
};

}  // namespace softhca::fabric
