// Descriptor processing (SDXI 5.3): one turn of one context, by the thread that owns the context.
// The parsing loop, execution and completion are in ring_processor.cc; what ends a turn early is in
// ring_failures.cc.
#pragma once

#include "sdxi/completion.h"
#include "sdxi/context_stops.h"
#include "sdxi/descriptor_faults.h"
#include "sdxi/express.h"
#include "sdxi/operation.h"
#include "sdxi/turn.h"

namespace softhca::sdxi {

class RingProcessor {
 public:
  struct Parts {
    const DeviceOptions& options;
    const Registers& registers;
    const FunctionMemory& memory;
    const ContextTables& tables;
    const Completions& completions;
    const AccessKeys& keys;
    pcie::Interrupts& interrupts;
    GroupMember& self;
    const FunctionGroup& group;
    const ContextSet& contexts;
    ContextControl& control;
    ContextStops& stops;
    DescriptorFaults& faults;
    Gate& gate;
  };

  explicit RingProcessor(const Parts& parts);

  /// Takes one turn. At its end, CXT_STS.read_index covers everything done in the turn.
  Turn take_turn(Context& context, ThreadState& thread);

  /// True if an operation acted on another function, which may have work now. Asking clears it.
  bool other_function() { return std::exchange(other_function_, false); }

 private:
  // Each step returns how the turn ends, or nothing if the turn continues.
  TurnEnd prepare_turn(Context& context, ThreadState& thread);
  TurnEnd refresh(Context& context, const ThreadState& thread);
  TurnEnd check_state(Context& context, const ThreadState& thread);
  Turn process(Context& context, ThreadState& thread, Work& work);
  static bool goes_on(const ThreadState& thread);

  TurnEnd go_express(Context& context, ThreadState& thread);
  TurnEnd look_for_work(Context& context, const ThreadState& thread);
  TurnEnd fetch(Context& context, const ThreadState& thread);
  TurnEnd read_write_index(Context& context, const ThreadState& thread);
  TurnEnd parse(Context& context, const ThreadState& thread);
  void note(const Context& context, std::string_view text) const;
  TurnEnd prepare(Context& context, const ThreadState& thread, const Operation* operation);
  static bool clear_valid(const Context& context);

  TurnEnd execute(Context& context, const ThreadState& thread, Work& work);
  Checked<Progress> call(Context& context, Work& work);
  TurnEnd finish(Context& context, const ThreadState& thread, Work& work);
  TurnEnd follow_up(Context& context, const ThreadState& thread, Work& work);

  static bool write_read_index(Context& context);
  static void pay_remote(Context& context, ThreadState& thread);
  Turn fail(Context& context, const ThreadState& thread, const Refusal& refusal,
            std::optional<std::uint64_t> descriptor);
  Turn fail_access(Context& context, const ThreadState& thread, spec::err_step step, Iova at,
                   std::string_view reason, std::optional<std::uint64_t> descriptor);
  Turn fail_read_index(Context& context, const ThreadState& thread);
  TurnEnd fail_execution(Context& context, const ThreadState& thread, const Refusal& refusal);
  TurnEnd fail_completion(Context& context, const ThreadState& thread);
  Work make_work(const Context& context, const ThreadState& thread);

  Parts parts_;
  Express express_;
  bool other_function_ = false;
};

}  // namespace softhca::sdxi
