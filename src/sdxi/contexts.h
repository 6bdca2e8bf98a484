// The contexts of one function: doorbells, whose turn it is, parsing and execution of descriptors,
// start and stop (SDXI 4.2, 4.3, 5.3).
//
// A context has a Context object here only while it is in CXTV_RUN or CXTV_STOPG_* and was
// signaled; everything else is in memory, and read when it is needed. Each context executes one
// descriptor at a time, so that fences and sequential consistency hold by themselves; a long one
// goes on over several turns.
//
// Turns are given round robin, each worth the same amount of work (deficit round robin), so that a
// context with large copies does not slow one with small ones.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sdxi/context_control.h"
#include "sdxi/error_log.h"
#include "sdxi/faults.h"
#include "sdxi/operation.h"
#include "sdxi/options.h"
#include "util/clock.h"
#include "util/inspect.h"

namespace softhca::sdxi {

/// A started context.
struct Context {
  ContextEntry entry;
  AddressSpace space;         ///< of the entry, for this turn
  std::byte* ring = nullptr;  ///< the ring, if it is one piece of local memory, for this turn
  std::uint64_t read_index = 0;
  std::uint64_t write_index = 0;  ///< as last read
  std::uint64_t doorbell = 0;     ///< highest valid doorbell_value since the start
  bool doorbell_seen = false;
  bool active = false;
  bool queued = false;   ///< for a turn
  bool waiting = false;  ///< for a valid bit
  util::Time poll_at{};
  util::Duration poll_wait{};
  std::int64_t deficit = 0;  ///< work that it may still do
  Execution execution;
  // SDXI 4.2.5 CXTV_STOPG_*.
  bool stopping = false;
  StopCause stop_cause = StopCause::kLocal;
  std::optional<util::Time> abort_at{};  ///< when outstanding descriptors are aborted
  // Injected faults: until when the descriptor is held back, and what keeps the stop from ending.
  util::Time held_until{};
  FaultId hang = 0;
};

/// HaltErr:Fn (SDXI 3.4).
class FunctionHalt {
 public:
  virtual ~FunctionHalt() = default;
  virtual void halt(const Refusal& refusal, std::optional<ContextNumber> context) = 0;
};

/// Contexts that wait for their turn, each at most once. Never allocates after construction.
class TurnQueue {
 public:
  explicit TurnQueue(std::size_t capacity) : numbers_(capacity) {}
  bool empty() const { return count_ == 0; }
  void push(ContextNumber number) {
    assert(count_ < numbers_.size());
    numbers_[(first_ + count_++) % numbers_.size()] = number;
  }
  ContextNumber pop() {
    const auto number = numbers_[first_];
    first_ = (first_ + 1) % numbers_.size();
    --count_;
    return number;
  }

 private:
  std::vector<ContextNumber> numbers_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

class Contexts final : public ContextControl {
 public:
  struct Parts {
    const DeviceOptions& options;
    const Registers& registers;
    const FunctionMemory& memory;
    const ContextTables& tables;
    const AccessKeys& keys;
    pcie::Interrupts& interrupts;
    ErrorLog& log;
    GroupMember& self;
    const FunctionGroup& group;
    Faults& faults;
    FunctionHalt& halt;
  };

  explicit Contexts(const Parts& parts);
  ~Contexts() override;

  /// A doorbell write: noted, evaluated in run().
  void note_doorbell(ContextNumber number, std::uint64_t value);

  /// Does a bounded amount of work; returns when to be called next.
  util::Time run(util::Time now);

  /// Stop:Fn (SDXI 4.3.5) for the contexts that run; then continue_function_stop() until it is
  /// true.
  void begin_function_stop(bool hard);
  /// Visits further contexts; true when all have reached their final state.
  bool continue_function_stop(util::Time now);
  /// True if continue_function_stop() has contexts left to visit.
  bool function_stop_visits() const {
    return function_stop_ && function_stop_->next < contexts_.size();
  }

  /// Forgets all contexts, without a trace in memory: reset, halt, end of a function stop.
  void drop_all();

  // ContextControl
  const Registers& registers() const override { return parts_.registers; }
  const ContextTables& tables() const override { return parts_.tables; }
  Checked<void> start(ContextNumber number, StartKind kind) override;
  Checked<void> stop(ContextNumber number, StopCause cause, bool hard) override;
  void ring(ContextNumber number, std::uint64_t value) override;
  void update(ContextNumber first, ContextNumber last) override;
  bool stopping(ContextNumber first, ContextNumber last,
                const ContextControl* asker) const override;
  std::uint64_t doorbells_received() const override { return doorbells_received_; }
  bool doorbells_evaluated(std::uint64_t count) const override {
    return doorbells_evaluated_ >= count;
  }
  void log_for_pf(const Refusal& refusal) override;

  /// Counters for tools and tests.
  struct Statistics {
    std::uint64_t descriptors = 0;  ///< completed, with or without error
    std::uint64_t bytes = 0;        ///< of the budget that was used
    std::uint64_t errors = 0;       ///< context stops by error
  };
  const Statistics& statistics() const { return statistics_; }
  void inspect(util::InspectNode& out) const;
  /// Calls `visit` with every started context.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& context : contexts_) {
      if (context != nullptr && context->active) visit(*context);
    }
  }

 private:
  enum class Turn : std::uint8_t { kIdle, kAgain, kWaitValid, kHeld };

  // contexts.cc: doorbells and turns
  void take_doorbells();
  void evaluate(ContextNumber number, std::uint64_t value);
  void activate(const ContextEntry& entry, std::uint64_t value);
  void enqueue(Context& context);
  void take_turn(Context& context);
  void wake_waiting();
  util::Time next_run() const;
  Context* find(ContextNumber number) const { return contexts_[number].get(); }
  Context* find_active(ContextNumber number) const;
  void drop(Context& context);

  // context_ring.cc: parsing, execution, completion (SDXI 5.3)
  Turn work(Context& context);
  std::optional<Turn> parse(Context& context);
  bool read_write_index(Context& context);
  static bool read_descriptor(Context& context, Iova at);
  static bool clear_valid(Context& context, Iova at);
  void execute(Context& context);
  void finish(Context& context);
  Work make_work(Context& context);

  // context_stop.cc: SDXI 4.3.5
  Checked<void> mark_stopping(Context& context, StopCause cause, bool hard);
  void make_stop_hard(Context& context);
  void end_stop(Context& context);
  void abort_execution(Context& context);
  void stop_for_error(Context& context, const Refusal& refusal,
                      std::optional<std::uint64_t> descriptor);
  void check_stop_deadlines();

  // context_faults.cc: injected faults
  std::optional<Turn> inject(Context& context);
  std::optional<Turn> hold(Context& context);
  Turn fail_by_rule(Context& context);
  Checked<void> complete_by_rule(Context& context);
  bool hangs(Context& context, bool hard);

  // context_inspect.cc
  void inspect_entry(const ContextEntry& entry, util::InspectNode& out) const;

  Parts parts_;
  std::vector<std::unique_ptr<Context>> contexts_;  ///< by number; null until first started
  std::vector<std::uint64_t> doorbell_values_;      ///< by number, of noted doorbells
  std::vector<bool> doorbell_noted_;
  std::vector<ContextNumber> doorbells_;  ///< noted, each number once
  TurnQueue turns_;
  std::vector<ContextNumber> waiting_;  ///< for valid bits, or held by a fault
  std::uint64_t faults_seen_ = 0;       ///< generation of the fault rules
  unsigned stopping_count_ = 0;
  std::uint64_t doorbells_received_ = 0;
  std::uint64_t doorbells_evaluated_ = 0;
  /// SDXI 6.6.4: a DSC_CXT_STOP of context 0 by itself begins after its own completion.
  struct SelfStop {
    StopCause cause;
    bool hard;
  };
  std::optional<SelfStop> self_stop_;
  bool other_function_ = false;   ///< a PF gave a VF work in this run()
  Context* executing_ = nullptr;  ///< whose operation is being called
  struct FunctionStop {
    bool hard = false;
    std::uint32_t next = 0;  ///< context to visit
  };
  std::optional<FunctionStop> function_stop_;
  util::Time now_{};
  std::vector<std::byte> bounce_;
  Statistics statistics_;
};

}  // namespace softhca::sdxi
