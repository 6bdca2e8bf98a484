// Measures how long the kernel takes to wake a client, by its eventfds and by its socket.
//
// A client can watch one eventfd by thousands of epoll entries. Each signal visits them all in the
// signaler's time, and all clients of the loop wait. Neither the eventfd nor the kernel shows that
// beforehand.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "os/event_loop.h"
#include "util/clock.h"

namespace softhca::vfio_user {

/// CPU time of the calling thread.
util::Time thread_time();

/// One client's meter. Callable from any thread.
class WakeupMeter {
 public:
  /// Function pointers, because the clocks are read for each interrupt.
  struct Clocks {
    util::Time (*now)() = util::monotonic_now;
    util::Time (*thread_time)() = vfio_user::thread_time;
  };

  /// A wakeup that takes less, plus a nanosecond for each byte that it moves, raises no suspicion.
  static constexpr util::Duration kSuspicious = std::chrono::microseconds(50);
  /// CPU time of a wakeup that is not charged; a faster wakeup reduces the sum. Inside a virtual
  /// machine an innocent wakeup takes some 100 us.
  static constexpr util::Duration kAllowed = std::chrono::milliseconds(1);
  /// The most that one wakeup is charged: a hypervisor may have stopped the processor meanwhile.
  static constexpr util::Duration kCountMax = std::chrono::milliseconds(10);
  /// Above this sum the client has exceeded its time: after three slow wakeups at the earliest.
  static constexpr util::Duration kLimit = std::chrono::milliseconds(27);

  /// `notice`: raised when exceeded() becomes true; null: none.
  WakeupMeter(const Clocks& clocks, os::EventLoop::Notice* notice)
      : clocks_(clocks), notice_(notice) {}
  WakeupMeter(const WakeupMeter&) = delete;
  WakeupMeter& operator=(const WakeupMeter&) = delete;

  /// Calls `wake`, which returns the number of bytes that it has moved.
  template <class Wake>
  void measure(Wake wake) {
    // CPU time costs a system call. It is read only after a suspicion, because a wakeup on a
    // crowded machine may be slow by the clock and innocent.
    const bool suspected = counted_.load(std::memory_order_relaxed) != util::Duration::zero();
    const auto clock = suspected ? clocks_.thread_time : clocks_.now;
    const auto begin = clock();
    const auto moved = std::chrono::nanoseconds(wake());
    const auto taken = clock() - begin - moved;
    if (suspected) count(taken);
    if (!suspected && taken >= kSuspicious) suspect(taken);
  }
  /// The client should lose its session, and be woken no more.
  bool exceeded() const { return counted_.load(std::memory_order_relaxed) >= kLimit; }

 private:
  /// Concurrent calls may lose part of the sum.
  void count(util::Duration taken);
  /// `taken` is wall-clock time, which is charged only while the sum is zero: all threads of a
  /// crowded machine may be slow at the same time.
  void suspect(util::Duration taken);

  Clocks clocks_;
  os::EventLoop::Notice* notice_;
  std::atomic<util::Duration> counted_{};
};

}  // namespace softhca::vfio_user
