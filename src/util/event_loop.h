// A small epoll loop: file descriptors with callbacks, a wake-up from other threads, an end by
// signal. No allocation per event.
//
// Single-threaded but for wake() and stop().
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "util/clock.h"
#include "util/result.h"

namespace softhca::util {

class EventLoop {
 public:
  /// Gets the ready events as epoll names them (EPOLLIN, EPOLLHUP, ...). May add and remove
  /// descriptors, its own included.
  using Callback = std::function<void(std::uint32_t events)>;

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `callback` when one of `events` (EPOLLIN, EPOLLOUT; level-triggered) holds for `fd`. The
  /// descriptor stays the caller's, who removes it before closing it.
  Result<void> add(int fd, std::uint32_t events, Callback callback);
  /// No effect if `fd` is not there. After this its callback is not called any more.
  void remove(int fd);

  /// Waits until something is ready or `until` has come (in the past: does not wait), and calls the
  /// callbacks. May return earlier, and returns how many were called.
  unsigned run_once(Time until);
  /// The descriptor whose callback run_once() called last.
  unsigned last_called() const { return last_called_; }

  /// Ends a run_once() that waits. From any thread, and from signal handlers.
  void wake();

  /// From now on SIGINT and SIGTERM do not end the process but make stopped() true. Blocks them in
  /// this thread, until the loop goes; call before other threads start.
  Result<void> stop_on_signals();
  /// Makes stopped() true and wakes the loop. From any thread.
  void stop();
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    Callback callback;
    std::uint32_t generation = 0;  ///< so that an event of a removed descriptor finds nobody
    bool used = false;
  };

  EventLoop() = default;
  void set_timer(Time at);

  int epoll_ = -1;
  int wake_ = -1;
  int timer_ = -1;
  int signals_ = -1;
  sigset_t signals_before_{};
  std::vector<Slot> slots_;  ///< by file descriptor
  Time timer_at_ = kNever;   ///< when the timer rings; never: it is not set
  unsigned last_called_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace softhca::util
