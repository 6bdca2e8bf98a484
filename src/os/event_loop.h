// A small epoll loop: file descriptors with callbacks, notices from other threads and from signal
// handlers, and an end by signal. No allocation per event.
//
// No callback can hold up the loop: callbacks charge their work to budget(). When it is spent, the
// remaining descriptors are served in the next turn, before any that become ready later.
//
// Single-threaded, except wake(), stop() and notices.
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

namespace softhca::os {

class EventLoop {
 public:
  /// Receives the ready events as epoll names them (EPOLLIN, EPOLLHUP, ...). It may add and remove
  /// descriptors, including its own.
  using Callback = std::function<void(std::uint32_t events)>;

  /// Most work of all callbacks in one turn.
  static constexpr std::int64_t kTurnWork = 100'000;

  /// A callback that the loop calls once after raise().
  class Notice {
   public:
    /// `loop` outlives it. Made and destroyed in the loop's thread, but not inside a callback.
    Notice(EventLoop& loop, std::function<void()> callback);
    ~Notice();
    Notice(const Notice&) = delete;
    Notice& operator=(const Notice&) = delete;

    /// Callable from any thread and from signal handlers. In the loop's own thread it makes no
    /// system call.
    void raise();

   private:
    friend class EventLoop;
    EventLoop& loop_;
    std::function<void()> callback_;
    std::atomic<bool> raised_ = false;
  };

  static util::Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `callback` when `fd` has one of `events` (EPOLLIN, EPOLLOUT; level-triggered). The
  /// caller keeps the descriptor, and must remove it before closing it.
  util::Result<void> add(int fd, std::uint32_t events, Callback callback);
  /// Changes the events for which `fd` is watched. @pre add() was called
  void set_events(int fd, std::uint32_t events);
  /// No effect if `fd` was not added. Its callback is not called any more.
  void remove(int fd);

  /// Waits until a descriptor is ready or `until` has passed (in the past: does not wait), and
  /// calls the callbacks. May return earlier. Returns how many were called.
  unsigned run_once(util::Time until);
  /// The descriptor whose callback run_once() called last.
  unsigned last_called() const { return last_called_; }
  /// The budget of the current turn, for callbacks to charge.
  util::WorkBudget& budget() { return budget_; }

  /// Ends a waiting run_once(). Callable from any thread and from signal handlers.
  void wake();

  /// From now on SIGINT and SIGTERM do not end the process, but make stopped() true. Blocks them in
  /// this thread until the loop is destroyed; call it before other threads start.
  util::Result<void> stop_on_signals();
  /// Makes stopped() true and wakes the loop. Callable from any thread.
  void stop();
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    Callback callback;
    std::uint32_t generation = 0;  ///< so that events of a removed descriptor are recognized
    bool used = false;
  };

  /// More events than one turn is likely to find; the rest waits for the next turn.
  static constexpr int kEventsPerTurn = 32;

  EventLoop() = default;
  void set_timer(util::Time at);
  /// Waits for events if none are left from the last turn.
  void collect(util::Time until);
  void call_notices();
  /// Calls the callback. True if it counts in run_once()'s result.
  bool call(const epoll_event& event);

  int epoll_ = -1;
  int wake_ = -1;
  int timer_ = -1;
  int signals_ = -1;
  sigset_t signals_before_{};
  std::vector<Slot> slots_;             ///< indexed by file descriptor
  util::Time timer_at_ = util::kNever;  ///< when the timer expires; kNever: not set
  std::array<epoll_event, kEventsPerTurn> events_{};
  int next_event_ = 0;  ///< index in events_ of the next to handle
  int end_event_ = 0;
  std::vector<Notice*> notices_;
  std::atomic<bool> noticed_ = false;          ///< a notice was raised
  std::atomic<const void*> thread_ = nullptr;  ///< the thread in run_once()
  util::WorkBudget budget_{kTurnWork};
  unsigned last_called_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace softhca::os
