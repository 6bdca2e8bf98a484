// The worker threads of a function group: they take turns of contexts that the control thread has
// assigned to them. README.md, "Threads", has the whole scheme.
//
// A worker does only what succeeds in memory of this process. Anything else (an error, an
// interrupt, memory behind a peer) it leaves undone and hands the context back; the control thread
// then repeats that step.
//
// An idle worker takes a share of another worker's large copy (SharedCopy).
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
#include "util/time_source.h"

namespace softhca::sdxi {

class Workers {
 public:
  /// start() starts at most this many workers.
  static constexpr unsigned kMax = 64;

  explicit Workers(util::TimeSource clock = util::monotonic_now) : clock_(std::move(clock)) {
    sleeping_.reserve(kMax);
  }
  /// @pre no context is assigned
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Starts threads until there are `count`.
  void start(unsigned count);
  unsigned count() const { return count_.load(std::memory_order_relaxed); }
  /// For tests: workers that sleep until a doorbell or a copy of others wakes them.
  unsigned at_rest() const { return at_rest_.load(std::memory_order_relaxed); }
  /// How long a worker polls a ring that has become empty before it waits for the doorbell.
  void set_patience(util::Duration patience) { patience_ = patience; }
  /// Sets a function, called from any thread, that makes the control thread run the functions.
  void set_wake_control(std::function<void()> wake) { wake_control_ = std::move(wake); }
  void wake_control() const {
    if (wake_control_) wake_control_();
  }
  /// For tests and benchmarks: the native handle of a worker's thread.
  std::thread::native_handle_type native_handle(unsigned index) {
    return threads_[index]->thread.native_handle();
  }

  Gate& gate() { return gate_; }

  /// True if a worker should look around after its turn: a context or the control thread waits.
  bool wanted() const {
    return gate_.closing() || queued_.load(std::memory_order_relaxed) ||
           ending_.load(std::memory_order_relaxed);
  }

  /// Copies with the help of idle workers. Returns how many bytes, from the start, are copied: at
  /// least `turn`, and more only while nothing else waits for the caller. Returns 0 if the copy
  /// does not suit several threads. Called by a worker, in its turn.
  std::uint64_t copy_together(SharedCopy::Buffers buffers, std::uint64_t turn,
                              const ThreadState& thread);

  // Control thread.
  /// Gives the context to the workers, which look at it immediately.
  void assign(Context& context);
  /// Rings the doorbell of an assigned context.
  void ring(Context& context) {
    const auto before = context.attention.exchange(Attention::kRung);
    if (before == Attention::kNobody) return push(context);
    if (before == Attention::kAsleep) rouse();
  }
  /// Takes an assigned context back from wherever it is. @pre the gate is closed
  void withdraw(Context& context);

 private:
  /// A context that this worker polls because there may be work soon.
  struct Watch {
    Context* context;
    const std::uint64_t* write_index;  ///< null: polls for a valid bit
    util::Time until;                  ///< when to give up, or to read the valid bit again
  };
  struct Worker {
    Gate::Pass pass;
    ThreadState state;
    Context* current = nullptr;  ///< gets its next turn without queueing
    std::vector<Watch> watched;
    util::Time helps_until = util::Time::min();  ///< polls for copies of others until then
    std::uint64_t rouses = 0;                    ///< rouses_ when it prepared to sleep
    // Under mutex_. No other thread waits for this condition: before version 2.41, glibc can lose a
    // signal if several threads wait (its bug 25847).
    std::condition_variable wakeup;
    bool woken = false;
    bool helps = false;  ///< woken to help with a copy
    std::thread thread;
  };

  void serve(Worker& self);
  /// Works and polls inside the gate. Returns Time::min() if it must leave the gate, else the time
  /// until which it has nothing to look at.
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
  void wake_one(bool to_help = false);
  void rouse();
  void push(Context& context);

  const util::TimeSource clock_;
  Gate gate_;
  util::Duration patience_ = std::chrono::microseconds(50);
  std::function<void()> wake_control_;
  std::vector<std::unique_ptr<Worker>> threads_;
  std::atomic<unsigned> count_ = 0;  ///< of threads_; read by workers
  std::atomic<bool> ending_ = false;
  SharedCopy shared_;

  alignas(64) std::mutex mutex_;
  ContextQueue queue_;                     ///< under mutex_
  std::vector<Worker*> sleeping_;          ///< and not woken yet; under mutex_
  std::atomic<bool> any_sleeps_ = false;   ///< whether sleeping_ has any; changed under mutex_
  std::atomic<unsigned> at_rest_ = 0;      ///< sleepers without a time limit; changed under mutex_
  std::atomic<std::uint64_t> rouses_ = 0;  ///< doorbells for sleepers; changed under mutex_
  std::atomic<bool> queued_ = false;       ///< whether queue_ has any; changed under mutex_
};

}  // namespace softhca::sdxi
