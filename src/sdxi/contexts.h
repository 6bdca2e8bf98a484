// The contexts of one function: their doorbells, starts and turns (SDXI 4.2, 4.3). Its parts are
// ContextSet (which are active), Doorbells, Scheduler (whose turn it is), RingProcessor (what a
// turn does), ContextStops and FunctionStop (how contexts end).
//
// Each context executes one descriptor at a time, which implements fences and sequential
// consistency. A long descriptor continues over several turns. Turns are given round robin, each
// worth the same amount of work (deficit round robin): large copies of one context do not slow
// small ones of another.
//
// The control thread takes turns in run(). If the group has worker threads, it takes only those of
// context 0, of contexts that stop, and of contexts whose rings are not in local memory. Only the
// control thread calls the methods, except those of TurnTaker.
#pragma once

#include <cstdint>
#include <vector>

#include "sdxi/context_control.h"
#include "sdxi/context_set.h"
#include "sdxi/context_stops.h"
#include "sdxi/descriptor_faults.h"
#include "sdxi/doorbells.h"
#include "sdxi/function_stop.h"
#include "sdxi/options.h"
#include "sdxi/ring_processor.h"
#include "sdxi/scheduler.h"
#include "util/clock.h"
#include "util/inspection.h"
#include "util/work_budget.h"

namespace softhca::sdxi {

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
    GroupMember* pf;  ///< for a VF; else null
    const FunctionGroup& group;
    Faults& faults;
    FunctionHalt& halt;
    Workers& workers;
  };

  explicit Contexts(const Parts& parts);

  /// Notes a doorbell write; run() evaluates it.
  void note_doorbell(ContextNumber number, std::uint64_t value);

  /// Does a bounded amount of work; returns when to be called next.
  util::Time run(util::Time now, util::WorkBudget& work);

  /// Stop:Fn (SDXI 4.3.5): no new descriptor begins from now on. run() continues the stop.
  void begin_function_stop(bool hard);
  bool function_has_stopped() const { return function_stop_.is_complete(); }

  /// Forgets all contexts without writing to memory, for a reset, a halt, or the end of a function
  /// stop.
  void drop_all();

  // ContextControl
  const Registers& registers() const override { return parts_.registers; }
  const ContextTables& tables() const override { return parts_.tables; }
  Checked<void> start(ContextNumber number, StartKind kind) override;
  Checked<void> stop(ContextNumber number, StopCause cause, bool hard) override {
    return stops_.stop(number, cause, hard);
  }
  void ring(ContextNumber first, ContextNumber last, std::uint64_t value) override;
  void update() override { set_.update(); }
  bool stopping(ContextNumber first, ContextNumber last, const ContextControl* asker,
                std::int64_t& budget) const override {
    return stops_.any_in(first, last, asker == this, budget);
  }
  std::uint64_t doorbells_received() const override { return doorbells_.end(); }
  bool doorbells_evaluated(std::uint64_t mark) const override { return doorbells_.passed(mark); }
  void look_again() override;
  void log_unstopped(const Refusal& refusal) override;

  /// Counters for tools and tests.
  struct Statistics {
    std::uint64_t descriptors = 0;  ///< completed, with or without error
    std::uint64_t bytes = 0;        ///< of the budget, used
    std::uint64_t errors = 0;       ///< context stops by error
    std::uint64_t looked_at = 0;    ///< contexts, to find those that are active
  };
  Statistics statistics() const;
  void inspect(util::Inspection& out) const;
  /// Calls `visit` with every started context.
  template <class Visit>
  void for_each(Visit visit) const {
    const pcie::Paused workers_wait(&parts_.workers.gate());
    set_.for_each_active(visit);
  }

 private:
  // TurnTaker
  Turn take_worker_turn(Context& context, ThreadState& thread) override {
    return spend(context, thread, parts_.options.turn_bytes);
  }
  const std::uint64_t* write_index_of(const Context& context) const override {
    return scheduler_.write_index_of(context);
  }
  void hand_back(Context& context) override { scheduler_.hand_back(context); }

  template <class Part>
  std::int64_t with_one_stop(Part part);
  std::int64_t take_doorbells(std::int64_t budget);
  void evaluate(ContextNumber number);
  void activate(const ContextEntry& entry);
  std::int64_t take_turn(Context& context, std::int64_t budget);
  void after_turn(Context& context, Turn turn);
  Turn spend(Context& context, ThreadState& thread, std::int64_t budget);
  void notify_waiters();
  struct Seen;
  std::optional<Seen> look_at(ContextNumber number, util::Inspection& out) const;
  void inspect_one(const Seen& seen, util::InspectNode& list) const;
  void inspect_entry(const ContextEntry& entry, util::InspectNode& out) const;

  Parts parts_;
  ContextSet set_;
  Doorbells doorbells_;
  Completions completions_;
  Scheduler scheduler_;
  ContextStops stops_;
  FunctionStop function_stop_;
  DescriptorFaults faults_;
  RingProcessor processor_;
  std::vector<std::byte> bounce_;
  ThreadState thread_;  ///< the control thread's
  util::Time now_{};
  std::uint64_t stops_notified_ = 0;  ///< ContextStops::ended() at the last notification
  bool doorbells_notified_ =
      true;                      ///< whether waiting DSC_SYNCs were notified of evaluated doorbells
  bool other_function_ = false;  ///< another function was given work in this run()
};

}  // namespace softhca::sdxi
