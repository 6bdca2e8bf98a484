// A small epoll loop: file descriptors with callbacks, notices from other threads and from signal
// handlers, an end by signal. No allocation per event.
//
// Nobody holds it: callbacks charge what they do to budget(), and when that is spent, those that
// are left have their turn first the next time.
//
// Single-threaded but for wake(), stop() and notices.
#pragma once

#include <signal.h>
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "util/clock.h"
#include "util/result.h"
#include "util/work_budget.h"

namespace softhca::util {

class EventLoop {
 public:
  /// Gets the ready events as epoll names them (EPOLLIN, EPOLLHUP, ...). May add and remove
  /// descriptors, its own included.
  using Callback = std::function<void(std::uint32_t events)>;

  /// What callbacks of one turn may do in all.
  static constexpr std::int64_t kTurnWork = 100'000;

  /// A callback that is called from the loop, once, after raise().
  class Notice {
   public:
    /// `loop` outlives it. Made and gone in the loop's thread, and not from inside a callback.
    Notice(EventLoop& loop, std::function<void()> callback);
    ~Notice();
    Notice(const Notice&) = delete;
    Notice& operator=(const Notice&) = delete;

    /// From any thread, and from signal handlers. In the loop's own thread it costs no system call.
    void raise();

   private:
    friend class EventLoop;
    EventLoop& loop_;
    std::function<void()> callback_;
    std::atomic<bool> raised_ = false;
  };

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `callback` when one of `events` (EPOLLIN, EPOLLOUT; level-triggered) holds for `fd`. The
  /// descriptor stays the caller's, who removes it before closing it.
  Result<void> add(int fd, std::uint32_t events, Callback callback);
  /// From now on `fd` waits for `events`. @pre add() was called
  void set_events(int fd, std::uint32_t events);
  /// No effect if `fd` is not there. After this its callback is not called any more.
  void remove(int fd);

  /// Waits until something is ready or `until` has come (in the past: does not wait), and calls the
  /// callbacks. May return earlier, and returns how many were called.
  unsigned run_once(Time until);
  /// The descriptor whose callback run_once() called last.
  unsigned last_called() const { return last_called_; }
  /// Of the turn that is under way, for callbacks to charge.
  WorkBudget& budget() { return budget_; }

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

  /// More than a turn of the loop is likely to find; the rest waits for the next turn.
  static constexpr int kEventsPerTurn = 32;

  EventLoop() = default;
  void set_timer(Time at);
  /// Waits for events if none are left of the last turn.
  void collect(Time until);
  void call_notices();
  /// True if the callback was one that counts.
  bool call(const epoll_event& event);

  int epoll_ = -1;
  int wake_ = -1;
  int timer_ = -1;
  int signals_ = -1;
  sigset_t signals_before_{};
  std::vector<Slot> slots_;  ///< by file descriptor
  Time timer_at_ = kNever;   ///< when the timer rings; never: it is not set
  std::array<epoll_event, kEventsPerTurn> events_{};
  int next_event_ = 0;  ///< of events_, to be called
  int end_event_ = 0;
  std::vector<Notice*> notices_;
  std::atomic<bool> noticed_ = false;          ///< one of them was raised
  std::atomic<const void*> thread_ = nullptr;  ///< whose run_once() it is
  WorkBudget budget_{kTurnWork};
  unsigned last_called_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace softhca::util
