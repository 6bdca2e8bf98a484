// Decides whose turn it is: holds the contexts of one function that have work for the control
// thread and those that wait for a time, and exchanges contexts with the workers. README.md,
// "Threads", has the whole scheme.
//
// Only the control thread calls the methods, except hand_back().
#pragma once

#include <atomic>
#include <mutex>

#include "sdxi/context_queue.h"
#include "sdxi/faults.h"
#include "sdxi/options.h"
#include "sdxi/workers.h"

namespace softhca::sdxi {

class Scheduler {
 public:
  struct Parts {
    const FunctionMemory& memory;
    const Faults& faults;
    Workers& workers;
  };

  Scheduler(const Parts& parts, std::size_t contexts) : parts_(parts), waits_(contexts) {}

  /// Queues a context that may have work. It goes to the workers if they can do it.
  void enqueue(Context& context);
  /// The same, but the control thread continues the context.
  void keep(Context& context);
  /// Continues a turn that has not ended, before any other context has one.
  void go_on(Context& context) {
    if (!context.queued()) turns_.push_first(context);
  }
  /// Wakes the context at `at`, or earlier if it is enqueued.
  void wait_until(Context& context, util::Time at) { waits_.set(context, at); }
  /// Rings the doorbell of an active context.
  void ring(Context& context);
  /// Takes the context back from the workers, whatever they are doing with it.
  void recall(Context& context);
  /// The context has ended and gets no more turns.
  void forget(Context& context);

  /// Takes contexts that workers have handed back, and contexts whose wait is over. If fault rules
  /// have changed, all waits are over, because a rule may have held the context.
  void look(util::Time now);
  bool has_turns() const { return !turns_.empty(); }
  /// The context whose turn it is. It may have ended meanwhile. @pre has_turns()
  Context& next() { return turns_.pop(); }
  /// When look() has work to find; `now` if there is work already.
  util::Time next_time(util::Time now) const {
    return has_turns() || any_handed_back_ ? now : waits_.next();
  }

  /// True if workers can take its turns: they reach only memory of this process, and change nothing
  /// but their contexts.
  bool assignable(const Context& context) const;
  const std::uint64_t* write_index_of(const Context& context) const;

  /// Called by a worker, inside the gate, that could not continue the context.
  void hand_back(Context& context);

 private:
  Parts parts_;
  ContextQueue turns_;
  WaitQueue waits_;                ///< for valid bits, for other contexts, or held by a fault rule
  std::uint64_t faults_seen_ = 0;  ///< generation of the fault rules
  std::mutex handed_back_mutex_;
  ContextQueue handed_back_;  ///< under the mutex
  std::atomic<bool> any_handed_back_ =
      false;  ///< whether handed_back_ has any; changed under the mutex
};

}  // namespace softhca::sdxi
