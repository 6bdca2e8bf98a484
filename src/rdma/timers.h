// Timers of all QPs, and the lists of QPs that have something to do. Both are intrusive: arming,
// stopping and queueing allocate nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/clock.h"

namespace softhca::rdma {

class QueuePair;

enum class Timer : std::uint8_t {
  kAck,  ///< requester: no answer yet (IBTA 9.7.6.1.3, Local ACK Timeout)
  kRnr,  ///< requester: the peer was not ready (IBTA 9.7.5.2.8)
};
inline constexpr std::size_t kTimers = 2;

/// The deadlines of one QP, and its place in the TimerQueue.
struct Timers {
  static constexpr std::size_t kNotQueued = SIZE_MAX;

  std::array<util::Time, kTimers> deadlines = {util::kNever, util::kNever};
  util::Time queued_at = util::kNever;  ///< key in the queue: at or before next()
  std::size_t slot = kNotQueued;

  util::Time& operator[](Timer timer) { return deadlines[static_cast<std::size_t>(timer)]; }
  util::Time operator[](Timer timer) const { return deadlines[static_cast<std::size_t>(timer)]; }
  util::Time next() const { return deadlines[0] < deadlines[1] ? deadlines[0] : deadlines[1]; }
};

/// A binary heap of QPs by deadline. ACK timers move with every answer, nearly always to later:
/// such a move only stores the new deadline, and the heap is put right when the old one comes up.
class TimerQueue {
 public:
  void arm(QueuePair& qp, Timer timer, util::Time deadline);
  void stop(QueuePair& qp, Timer timer);
  void remove(QueuePair& qp);
  /// What it takes to put one place in the queue right (util::WorkBudget).
  static constexpr std::int64_t kSettleWork = 80;

  /// Whether expired() may find one.
  bool due(util::Time now) const;
  /// The QP whose earliest deadline is at or before `now`; null if there is none, or if more places
  /// have to be put right first than `work` allows, from which each is taken.
  QueuePair* expired(util::Time now, std::int64_t& work);
  /// A time at or before the earliest deadline; kNever if none is armed.
  util::Time next();

 private:
  static util::Time key(const QueuePair* qp);
  void place(std::size_t slot, QueuePair* qp);
  void sift_up(std::size_t slot);
  void sift_down(std::size_t slot);
  /// Gives the first QP its true deadline as key.
  void settle_first();

  std::vector<QueuePair*> heap_;
};

/// The lists that a QP can be in, in one of them or in both.
enum class Queue : std::uint8_t {
  kReady,       ///< has something to do
  kUnreleased,  ///< has completions that wait for the fabric
};
inline constexpr std::size_t kQueues = 2;

/// A QP's place in a QpList.
struct QpLink {
  QueuePair* next = nullptr;
  QueuePair* previous = nullptr;
  bool queued = false;
};

/// QPs, each once, first come first served.
class QpList {
 public:
  explicit QpList(Queue queue) : queue_(queue) {}
  bool empty() const { return first_ == nullptr; }
  /// Null if the list is empty.
  QueuePair* front() const { return first_; }
  /// Does nothing if the QP is in the list.
  void push_back(QueuePair& qp);
  QueuePair* pop_front();
  void remove(QueuePair& qp);

 private:
  QpLink& link(QueuePair& qp) const;

  const Queue queue_;
  QueuePair* first_ = nullptr;
  QueuePair* last_ = nullptr;
};

}  // namespace softhca::rdma
