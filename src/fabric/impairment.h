// A link that loses, duplicates, reorders and delays frames, by seed or by script.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "fabric/port.h"
#include "util/clock.h"

namespace softhca::fabric {

/// A port in front of another; only transmitted frames are impaired. The same seed, frames and
/// times give the same result on every platform.
///
/// Frames enter by transmit(); time enters by handle_timeout(), which must be called no later than
/// next_event() says.
class Impairment final : public Port {
 public:
  struct Options {
    std::uint64_t seed = 1;
    double loss = 0;       ///< probability per frame
    double duplicate = 0;  ///< probability per frame that is not lost
    double reorder = 0;    ///< probability per copy
    /// A reordered frame lets 1 to this many later frames pass, but waits at most reorder_hold.
    unsigned reorder_distance = 3;
    util::Duration reorder_hold = std::chrono::microseconds(100);
    /// Each frame is delayed by `delay` plus up to `jitter`, which does not reorder frames.
    util::Duration delay{0};
    util::Duration jitter{0};
  };
  struct Counters {
    std::uint64_t transmitted = 0;  ///< frames passed to transmit()
    std::uint64_t lost = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t reordered = 0;
    std::uint64_t scripted = 0;  ///< scripted faults that fired
    std::uint64_t forwarded = 0;
  };

  enum class Action : std::uint8_t { kDrop, kDuplicate, kReorder };
  /// Matching frames are counted from 1; `action` applies to the nth and the count - 1 after it.
  struct Fault {
    std::function<bool(const wire::Frame&)> match;  ///< empty: every frame
    std::uint64_t nth = 1;
    std::uint64_t count = 1;
    Action action = Action::kDrop;
  };

  /// @pre `below` outlives this
  Impairment(Port& below, const Options& options);

  std::uint64_t transmit(const wire::Frame& frame) override;
  /// Not impaired, because the frame does not cross the link.
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override;
  std::uint64_t released() const override;
  std::int64_t settle() override { return below_.settle(); }  // frames held here own their payload
  void set_receiver(Receiver* receiver) override { below_.set_receiver(receiver); }
  bool link_up() const override { return below_.link_up(); }

  void add_fault(Fault fault) { faults_.push_back({std::move(fault), 0}); }
  /// Drops the nth frame from now on.
  void drop_nth(std::uint64_t nth) { add_fault({.match = {}, .nth = nth}); }
  /// Faults that have not fired completely: a test that injects one asserts that none is left.
  std::size_t faults_pending() const { return faults_.size(); }

  /// Forwards frames due at `now`, which must not decrease.
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
    wire::Frame frame;  ///< owns its payload, because the sender's memory may be released
    util::Time due;
    unsigned passes_left;  ///< later frames that must pass first; 0: only time counts
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
  /// When the port below has released frame `below`, this one has released `own`.
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
  Mark last_;        ///< of the last frame that was passed on
  Mark checkpoint_;  ///< of an earlier frame: in a steady flow the last one is never released
  std::uint64_t released_ = 0;
};

}  // namespace softhca::fabric
