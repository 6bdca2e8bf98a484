// Descriptor processing (SDXI 5.3), the cases other than success: errors, administrative
// operations, and updated structures.
#include <cassert>

#include "sdxi/budget.h"
#include "sdxi/ring_processor.h"

namespace softhca::sdxi {

using spec::err_step;

/// Stops a context that cannot continue. A worker leaves everything as it is, and the control
/// thread finds the same error.
Turn RingProcessor::fail(Context& context, const ThreadState& thread, const Refusal& refusal,
                         std::optional<std::uint64_t> descriptor) {
  if (thread.worker) return Turn::kHandBack;
  parts_.stops.stop_for_error(context, refusal, descriptor);
  return Turn::kIdle;
}

Turn RingProcessor::fail_access(Context& context, const ThreadState& thread, err_step step, Iova at,
                                std::string_view reason, std::optional<std::uint64_t> descriptor) {
  const auto fault = context.space.explain(at);
  return fail(context, thread,
              {.step = step,
               .sub_step = fault.sub_step,
               .err_class = fault.err_class,
               .reason = reason,
               .section = "SDXI 5.3",
               .value = at},
              descriptor);
}

Turn RingProcessor::fail_read_index(Context& context, const ThreadState& thread) {
  return fail_access(context, thread, err_step::ERRV_CXT_STS, context.entry.read_index(),
                     "CXT_STS.read_index cannot be written", std::nullopt);
}

TurnEnd RingProcessor::fail_execution(Context& context, const ThreadState& thread,
                                      const Refusal& refusal) {
  if (thread.worker) return Turn::kHandBack;
  auto& execution = context.execution;
  execution.executing = false;
  ++context.descriptors;
  parts_.completions.complete_with_error(context.space,
                                         util::View<spec::dsc_generic>(execution.descriptor));
  return fail(context, thread, refusal, execution.index);
}

TurnEnd RingProcessor::fail_completion(Context& context, const ThreadState& thread) {
  if (thread.worker) return Turn::kHandBack;
  auto& execution = context.execution;
  execution.executing = false;
  ++context.descriptors;
  return fail(
      context, thread,
      Completions::signal_error(context.space, util::View<spec::dsc_generic>(execution.descriptor)),
      execution.index);
}

/// Reads the entry again after an update operation (SDXI 4.3.1).
TurnEnd RingProcessor::refresh(Context& context, const ThreadState& thread) {
  const auto updates = parts_.contexts.update_count();
  // SDXI 3.2: the limit was lowered, and the tables must not be accessed. The context ends with its
  // cached entry.
  if (parts_.tables.is_above_limit(context.entry.number)) {
    context.entry_age = updates;
    return std::nullopt;
  }
  const auto entry = parts_.tables.walk(context.entry.number);
  if (!entry && thread.worker) return Turn::kHandBack;
  context.bytes += kContextCost;
  if (!entry) {
    // SDXI 4.2.6: software made a running context invalid.
    parts_.stops.abandon(context);
    if (entry.error().log_err) parts_.control.log_unstopped(*entry.error().log_err);
    return Turn::kIdle;
  }
  context.deficit -= kContextCost;
  context.entry = *entry;
  context.entry_age = updates;
  return std::nullopt;
}

/// Traces a descriptor that is not in local memory; with a trace none is.
void RingProcessor::note(const Context& context, std::string_view text) const {
  auto* trace = parts_.memory.trace();
  if (trace == nullptr) return;
  using dsc = spec::dsc_generic;
  const auto footer = util::View<dsc>(context.execution.descriptor).get(dsc::footer);
  const bool has_block = footer.get(spec::dsc_footer::np) == 0;
  trace->note(util::TraceStep::kSendWqe, text,
              {{"context", context.entry.number},
               {"index", context.read_index},
               {"completion", has_block ? spec::address(footer, spec::dsc_footer::csb_ptr) : 0}});
}

/// Steps 6 and 7 for a header that needs more than acceptance; `operation` is null if it is
/// refused.
TurnEnd RingProcessor::prepare(Context& context, const ThreadState& thread,
                               const Operation* operation) {
  if (operation == nullptr) {
    const auto checked = check_header(parts_.registers, context.entry,
                                      util::View<spec::dsc_header>(context.execution.descriptor));
    assert(!checked);
    note(context, checked.error().reason);
    return fail(context, thread, checked.error(), context.read_index);
  }
  if (thread.worker && !operation->by_worker) return Turn::kHandBack;
  // Software that receives the interrupt may read Read_Index.
  if (write_read_index(context)) return std::nullopt;
  return fail_read_index(context, thread);
}

/// Executes an operation that only the control thread may execute.
Checked<Progress> RingProcessor::call(Context& context, Work& work) {
  auto& execution = context.execution;
  // Administrative operations act on other contexts. When an update has completed, no worker uses
  // what the tables held before (SDXI 4.3.1).
  std::optional<pcie::Paused> workers_wait;
  if (execution.operation->type == spec::dsc_type::ADMIN_GRP) workers_wait.emplace(&parts_.gate);
  parts_.stops.operation_begins(context, execution.done == 0);
  auto progress = execution.operation->execute(work, execution);
  parts_.stops.operation_ends();
  other_function_ = other_function_ || work.other_function;
  return progress;
}

/// The end of an administrative operation: begins what must follow its own completion. After an
/// update the turn ends, so that the context's own entry is read again.
TurnEnd RingProcessor::follow_up(Context& context, const ThreadState& thread, Work& work) {
  if (!write_read_index(context)) return fail_read_index(context, thread);
  const pcie::Paused workers_wait(&parts_.gate);
  context.deficit -= signal_started(work, context.execution) * kSignalCost;
  parts_.stops.operation_completed(context);
  if (context.active && context.entry_age != parts_.contexts.update_count()) return Turn::kAgain;
  return std::nullopt;
}

}  // namespace softhca::sdxi
