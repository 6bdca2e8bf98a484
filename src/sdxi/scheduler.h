// Whose turn it is: the contexts of one function that have work for the control thread, those that
// wait for a time, and the traffic with the workers. README.md, "Threads", has the whole scheme.
//
// All methods are the control thread's, but for hand_back().
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

  /// The context may have work. It goes to the workers if they can do it.
  void enqueue(Context& context);
  /// The same, but this thread goes on with it.
  void keep(Context& context);
  /// Its turn has not ended: it goes on before any other has one.
  void go_on(Context& context) {
    if (!context.queued) turns_.push_first(context);
  }
  /// The context has work at `at`, or earlier if it is enqueued.
  void wait_until(Context& context, util::Time at) { waits_.set(context, at); }
  /// A doorbell of a context that is active.
  void ring(Context& context);
  /// Makes the context this thread's, wherever it is.
  void recall(Context& context);
  /// The context has ended: it gets no turn any more.
  void forget(Context& context);

  /// Takes what workers have handed back, and who has waited long enough. Everybody has if fault
  /// rules have changed: one may have held them back.
  void look(util::Time now);
  bool has_turns() const { return !turns_.empty(); }
  /// Whose turn it is. It may have ended meanwhile. @pre has_turns()
  Context& next() { return turns_.pop(); }
  /// When look() has something to find; `now` if there is work already.
  util::Time next_time(util::Time now) const {
    return has_turns() || any_handed_back_ ? now : waits_.next();
  }

  /// Workers reach what lies in memory of this process, and change nothing but their contexts.
  bool lendable(const Context& context) const;
  const std::uint64_t* write_index_of(const Context& context) const;

  /// From a worker, inside the gate: it could not go on.
  void hand_back(Context& context);

 private:
  Parts parts_;
  ContextQueue turns_;
  WaitQueue waits_;                ///< for valid bits, for other contexts, or held by a fault
  std::uint64_t faults_seen_ = 0;  ///< generation of the fault rules
  std::mutex handed_back_mutex_;
  ContextQueue handed_back_;                   ///< under the mutex
  std::atomic<bool> any_handed_back_ = false;  ///< whether there are; changed under the mutex
};

}  // namespace softhca::sdxi
