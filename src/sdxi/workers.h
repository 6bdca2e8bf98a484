// The worker threads of a function group: they take turns of contexts that the control thread has
// lent them. README.md, "Threads", has the whole scheme.
//
// A worker does only what succeeds in memory of this process. Whatever else comes up (an error, an
// interrupt, memory behind a peer) it leaves undone and hands the context back, and the control
// thread meets it again.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "sdxi/context.h"
#include "sdxi/gate.h"
#include "util/clock.h"

namespace softhca::sdxi {

/// How a turn ended.
enum class Turn : std::uint8_t {
  kIdle,       ///< the ring is empty, or the context has ended
  kAgain,      ///< there is more to do
  kWaitValid,  ///< the next descriptor is not valid yet
  kHeld,       ///< by an injected fault; of the control thread only
  kHandBack,   ///< the control thread must go on
};

/// What a thread needs for its turns.
struct Hands {
  static constexpr std::size_t kBatch = 32;

  bool worker = false;
  /// At most one descriptor: what a worker could not do.
  bool one = false;
  std::span<std::byte>
      bounce{};  ///< for copies between memory that is not local; a worker has none
  // Of this turn.
  HeaderRules rules{};
  // Descriptors that were fetched together, in order, with vl set, and where the first one is if
  // the ring is local.
  alignas(64) std::array<std::array<std::byte, spec::kDescriptorSize>, kBatch> batch;
  std::byte* slots = nullptr;
  std::size_t taken = 0;
  std::size_t fetched = 0;
};

/// The contexts' function, as workers see it. Called inside the gate.
class TurnTaker {
 public:
  virtual ~TurnTaker() = default;
  /// One turn of a context that the caller alone works on.
  virtual Turn take_worker_turn(Context& context, Hands& hands) = 0;
  /// Where Write_Index is; null if it cannot be reached any more. Good until the gate is left.
  virtual const std::uint64_t* write_index_of(const Context& context) const = 0;
  /// The context is the control thread's again, which is to look soon.
  virtual void hand_back(Context& context) = 0;
};

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
  unsigned count() const { return static_cast<unsigned>(threads_.size()); }
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

  // Control thread.
  /// Gives the context to the workers, who look at it at once.
  void lend(Context& context);
  /// A doorbell of a lent context.
  void ring(Context& context) {
    if (context.attention.exchange(Attention::kRung) == Attention::kNobody) push(context);
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
    Hands hands;
    Context* current = nullptr;  ///< goes on with its next turn, without queueing
    std::vector<Watch> watched;
    std::thread thread;
  };

  void serve(Worker& self);
  /// Works and polls inside the gate until somebody wants it closed (Time::min()), or until there
  /// is nothing to look at before the time that is returned.
  util::Time attend(Worker& self);
  Context* next(Worker& self);
  void take_turn(Worker& self, Context& context);
  void look(Worker& self, util::Time now);
  void offer(Worker& self, Context& context);
  static util::Time next_look(const Worker& self);
  static void refresh(Worker& self);
  static bool put_down(Context& context, const std::uint64_t* write_index);
  void sleep(util::Time until);
  void push(Context& context);

  Gate gate_;
  util::Duration patience_ = std::chrono::microseconds(50);
  std::function<void()> wake_control_;
  std::vector<std::unique_ptr<Worker>> threads_;
  std::atomic<bool> ending_ = false;

  alignas(64) std::mutex mutex_;
  ContextQueue queue_;                ///< under mutex_
  unsigned sleepers_ = 0;             ///< under mutex_
  std::atomic<bool> queued_ = false;  ///< whether queue_ has any; changed under mutex_
  std::condition_variable wakeup_;
};

}  // namespace softhca::sdxi
