// Timers of all QPs. Arming and stopping a timer allocates nothing once a QP has had one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/clock.h"

namespace softhca::rdma {

class QueuePair;

enum class Timer : std::uint8_t {
  kAck,  ///< requester: no response yet (IBTA 9.7.6.1.3, Local ACK Timeout)
  kRnr,  ///< requester: the peer was not ready (IBTA 9.7.5.2.8), or the QP is rate-limited
         ///< (congestion.h)
};
inline constexpr std::size_t kTimers = 2;

/// The deadlines of one QP, and its slot in the TimerQueue.
struct Timers {
  static constexpr std::size_t kNotQueued = SIZE_MAX;

  std::array<util::Time, kTimers> deadlines = {util::kNever, util::kNever};
  util::Time queued_at = util::kNever;  ///< key in the queue: at or before next()
  std::size_t slot = kNotQueued;

  util::Time& operator[](Timer timer) { return deadlines[static_cast<std::size_t>(timer)]; }
  util::Time operator[](Timer timer) const { return deadlines[static_cast<std::size_t>(timer)]; }
  util::Time next() const { return deadlines[0] < deadlines[1] ? deadlines[0] : deadlines[1]; }
};

/// A binary heap of QPs by deadline. Every response moves an ACK timer, nearly always to later.
/// Such a move only stores the new deadline; the heap is updated when the old deadline comes up.
class TimerQueue {
 public:
  void arm(QueuePair& qp, Timer timer, util::Time deadline);
  void stop(QueuePair& qp, Timer timer);
  static bool is_armed(const QueuePair& qp, Timer timer);
  void remove(QueuePair& qp);
  /// Cost of updating one entry of the heap (util::WorkBudget).
  static constexpr std::int64_t kSettleWork = 80;

  /// True if expired() may find a QP.
  bool due(util::Time now) const { return first_key_ <= now; }
  /// A QP whose earliest deadline is at or before `now`. Null if there is none, or if `work` runs
  /// out first: each heap entry that must be updated is deducted from it.
  QueuePair* expired(util::Time now, std::int64_t& work);
  /// A time at or before the earliest deadline; kNever if none is armed.
  util::Time next();
  /// Total number of heap entry moves: the cost of the queue so far.
  std::uint64_t moves() const { return moves_; }

 private:
  /// The key is copied from the QP, so that sifting touches few of the possibly very many QPs.
  struct Place {
    util::Time key;
    QueuePair* qp;
  };

  void arm_in_queue(QueuePair& qp);
  bool take_only_place(QueuePair& qp);
  void note_first() { first_key_ = heap_.empty() ? util::kNever : heap_.front().key; }
  void place(std::size_t slot, const Place& place);
  void sift_up(std::size_t slot);
  void sift_down(std::size_t slot);
  util::Time next_armed();
  /// Updates the key of the first QP to its current deadline.
  void settle_first();

  std::vector<Place> heap_;
  std::size_t armed_ = 0;  ///< QPs with a deadline
  std::uint64_t moves_ = 0;
  util::Time first_key_ = util::kNever;  ///< key of heap_.front()
};

}  // namespace softhca::rdma
