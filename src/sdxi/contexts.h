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
//
// Turns are taken in run(), or, where the group has worker threads, by these: all but those of
// context 0, of contexts that stop, and of those whose rings are not in local memory. Methods are
// the control thread's, except for those of TurnTaker.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sdxi/context.h"
#include "sdxi/context_control.h"
#include "sdxi/doorbells.h"
#include "sdxi/error_log.h"
#include "sdxi/faults.h"
#include "sdxi/operation.h"
#include "sdxi/options.h"
#include "sdxi/workers.h"
#include "util/clock.h"
#include "util/inspect.h"

namespace softhca::sdxi {

/// HaltErr:Fn (SDXI 3.4).
class FunctionHalt {
 public:
  virtual ~FunctionHalt() = default;
  virtual void halt(const Refusal& refusal, std::optional<ContextNumber> context) = 0;
};

class Contexts final : public ContextControl, private TurnTaker {
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
    Workers& workers;
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
  void ring(ContextNumber first, ContextNumber last, std::uint64_t value) override;
  void update(ContextNumber first, ContextNumber last) override;
  bool stopping(ContextNumber first, ContextNumber last,
                const ContextControl* asker) const override;
  std::uint64_t doorbells_received() const override { return doorbells_.end(); }
  bool doorbells_evaluated(std::uint64_t mark) const override { return doorbells_.passed(mark); }
  void log_for_pf(const Refusal& refusal) override;

  /// Counters for tools and tests.
  struct Statistics {
    std::uint64_t descriptors = 0;  ///< completed, with or without error
    std::uint64_t bytes = 0;        ///< of the budget that was used
    std::uint64_t errors = 0;       ///< context stops by error
  };
  Statistics statistics() const;
  void inspect(util::InspectNode& out) const;
  /// Calls `visit` with every started context.
  template <class Visit>
  void for_each(Visit visit) const {
    const Alone alone(*this);
    for (const auto& context : contexts_) {
      if (context != nullptr && context->active) visit(*context);
    }
  }

 private:
  /// Workers are kept out as long as one exists.
  class Alone : pcie::Paused {
   public:
    explicit Alone(const Contexts& contexts) : Paused(&contexts.parts_.workers.gate()) {}
  };

  using End = std::optional<Turn>;

  // TurnTaker
  Turn take_worker_turn(Context& context, Hands& hands) override;
  const std::uint64_t* write_index_of(const Context& context) const override;
  void hand_back(Context& context) override;

  // contexts.cc: doorbells and turns
  std::int64_t take_doorbells(std::int64_t budget);
  void evaluate(ContextNumber number);
  void activate(const ContextEntry& entry);
  /// LogErr:Cxt that stops nothing.
  void log_unstopped(const Refusal& refusal, ContextNumber number);
  void enqueue(Context& context);
  std::int64_t take_turn(Context& context);
  Turn spend(Context& context, Hands& hands);
  bool lendable(const Context& context) const;
  void take_back();
  void recall(Context& context);
  void wake_waiting();
  util::Time next_run() const;
  Context* find(ContextNumber number) const { return contexts_[number].get(); }
  Context* find_active(ContextNumber number) const;
  void drop(Context& context);

  // context_ring.cc: parsing, execution, completion (SDXI 5.3). What ends a turn is returned.
  Turn work(Context& context, Hands& hands);
  Turn process(Context& context, Hands& hands, Work& work);
  End check_state(Context& context, const Hands& hands);
  End parse(Context& context, Hands& hands);
  End fetch(Context& context, Hands& hands);
  End read_write_index(Context& context, const Hands& hands);
  End execute(Context& context, const Hands& hands, Work& work);
  End finish(Context& context, const Hands& hands, Work& work);
  Checked<Progress> call(Context& context, Work& work);
  End prepare(Context& context, const Hands& hands, const Operation* operation);
  Turn fail_valid(Context& context, const Hands& hands);
  End fail_execution(Context& context, const Hands& hands, const Refusal& refusal);
  End fail_completion(Context& context, const Hands& hands);
  End follow_up(Context& context, const Hands& hands, Work& work);
  static bool clear_valid(const Context& context, const Hands& hands);
  static bool write_read_index(Context& context);
  Turn fail(Context& context, const Hands& hands, const Refusal& refusal,
            std::optional<std::uint64_t> descriptor);
  Work make_work(const Context& context, const Hands& hands);

  // context_stop.cc: SDXI 4.3.5
  Checked<void> mark_stopping(Context& context, StopCause cause, bool hard);
  void make_stop_hard(Context& context);
  void end_stop(Context& context);
  void abort_execution(Context& context);
  void stop_for_error(Context& context, const Refusal& refusal,
                      std::optional<std::uint64_t> descriptor);
  void check_stop_deadlines();

  // context_faults.cc: injected faults
  End inject(Context& context);
  End hold(Context& context);
  Turn fail_by_rule(Context& context);
  bool complete_by_rule(Context& context);
  bool hangs(Context& context, bool hard);

  // context_inspect.cc
  void inspect_entry(const ContextEntry& entry, util::InspectNode& out) const;

  Parts parts_;
  std::vector<std::unique_ptr<Context>> contexts_;  ///< by number; null until first started
  Doorbells doorbells_;
  ContextQueue turns_;  ///< of the control thread
  std::mutex handed_back_mutex_;
  ContextQueue handed_back_;                   ///< by workers; under the mutex
  std::atomic<bool> any_handed_back_ = false;  ///< whether there are; changed under the mutex
  std::vector<ContextNumber> waiting_;         ///< for valid bits, or held by a fault
  std::uint64_t faults_seen_ = 0;              ///< generation of the fault rules
  unsigned stopping_count_ = 0;
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
  Hands hands_;  ///< the control thread's
  std::uint64_t errors_ = 0;
};

}  // namespace softhca::sdxi
