// The worker threads of a function group: they take turns of contexts that the control thread has
// lent them. README.md, "Threads", has the whole scheme.
//
// A worker does only what succeeds in memory of this process. Whatever else comes up (an error, an
// interrupt, memory behind a peer) it leaves undone and hands the context back, and the control
// thread meets it again.
//
// A worker that has nothing else to do takes a part in the large copy of another (SharedCopy).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sdxi/context_queue.h"
#include "sdxi/gate.h"
#include "sdxi/shared_copy.h"
#include "sdxi/turn.h"
#include "util/clock.h"

namespace softhca::sdxi {

class Workers {
 public:
  /// More workers than this are not started.
  static constexpr unsigned kMax = 64;

  Workers() = default;
  /// @pre nothing is lent
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Starts threads until there are `count`.
  void start(unsigned count);
  unsigned count() const { return count_.load(std::memory_order_relaxed); }
  /// How long a worker looks at rings that have become empty before it waits for their doorbells.
  void set_patience(util::Duration patience) { patience_ = patience; }
  /// Called, from any thread, when the control thread should let the functions run.
  void set_wake_control(std::function<void()> wake) { wake_control_ = std::move(wake); }
  void wake_control() const {
    if (wake_control_) wake_control_();
  }
  /// For tests and benchmarks: the native handle of a worker's thread.
  std::thread::native_handle_type native_handle(unsigned index) {
    return threads_[index]->thread.native_handle();
  }

  Gate& gate() { return gate_; }

  /// True if a worker that has had its turn should look around: a context waits, or the control
  /// thread.
  bool wanted() const {
    return gate_.closing() || queued_.load(std::memory_order_relaxed) ||
           ending_.load(std::memory_order_relaxed);
  }

  /// Copies with the help of workers that have nothing else to do. Returns how many bytes, from
  /// the start, are copied: `turn` at least, and more than that only as long as nobody else wants
  /// the caller. 0 if it is no copy for several threads. From a worker, in its turn.
  std::uint64_t copy_together(SharedCopy::Buffers buffers, std::uint64_t turn,
                              const ThreadState& thread);

  // Control thread.
  /// Gives the context to the workers, who look at it at once.
  void lend(Context& context);
  /// A doorbell of a lent context.
  void ring(Context& context) {
    const auto before = context.attention.exchange(Attention::kRung);
    if (before == Attention::kNobody) return push(context);
    if (before == Attention::kAsleep) rouse();
  }
  /// Takes a lent context back, wherever it is. @pre the gate is closed
  void withdraw(Context& context);

 private:
  /// A context that this worker looks at because there may be work soon.
  struct Watch {
    Context* context;
    const std::uint64_t* write_index;  ///< null: for a valid bit
    util::Time until;                  ///< when to give up, or to look at the valid bit again
  };
  struct Worker {
    Gate::Pass pass;
    ThreadState state;
    Context* current = nullptr;  ///< goes on with its next turn, without queueing
    std::vector<Watch> watched;
    util::Time helps_until = util::Time::min();  ///< looks for copies of others so long
    std::uint64_t rouses = 0;                    ///< as of when it was ready to sleep
    std::thread thread;
  };

  void serve(Worker& self);
  /// Works and polls inside the gate until somebody wants it closed (Time::min()), or until there
  /// is nothing to look at before the time that is returned.
  util::Time attend(Worker& self);
  Context* next(Worker& self);
  void take_turn(Worker& self, Context& context);
  void look(Worker& self, util::Time now);
  void ask_for_help();
  void offer(Worker& self, Context& context);
  static util::Time next_look(const Worker& self);
  static void refresh(Worker& self);
  static bool put_down(Context& context, const std::uint64_t* write_index);
  bool lie_down(Worker& self);
  static void get_up(Worker& self);
  void sleep(Worker& self, util::Time until);
  void rouse();
  void push(Context& context);

  Gate gate_;
  util::Duration patience_ = std::chrono::microseconds(50);
  std::function<void()> wake_control_;
  std::vector<std::unique_ptr<Worker>> threads_;
  std::atomic<unsigned> count_ = 0;  ///< of threads_; workers look at it
  std::atomic<bool> ending_ = false;
  SharedCopy shared_;

  alignas(64) std::mutex mutex_;
  ContextQueue queue_;                  ///< under mutex_
  std::atomic<unsigned> sleepers_ = 0;  ///< changed under mutex_
  bool help_wanted_ = false;            ///< one of them is to take a part in a copy; under mutex_
  std::atomic<std::uint64_t> rouses_ = 0;  ///< doorbells for who sleeps; changed under mutex_
  std::atomic<bool> queued_ = false;       ///< whether queue_ has any; changed under mutex_
  std::condition_variable wakeup_;
};

}  // namespace softhca::sdxi
