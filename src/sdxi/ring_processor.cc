#include "sdxi/ring_processor.h"

#include <algorithm>

#include "sdxi/budget.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

/// Turns that may follow each other while nothing else waits for one; then the context's state is
/// read again.
constexpr unsigned kTurnsTogether = 16;

bool is_valid(std::span<const std::byte> descriptor) {
  return util::View<spec::dsc_header>(descriptor).get(spec::dsc_header::vl) != 0;
}

}  // namespace

RingProcessor::RingProcessor(const Parts& parts)
    : parts_(parts),
      express_({.options = parts.options,
                .registers = parts.registers,
                .completions = parts.completions,
                .keys = parts.keys,
                .faults = parts.faults.rules()}) {}

Turn RingProcessor::take_turn(Context& context, ThreadState& thread) {
  if (const auto end = prepare_turn(context, thread)) return *end;
  auto work = make_work(context, thread);
  for (unsigned turns = 1;; ++turns) {
    const auto before = context.deficit;
    const auto turn = process(context, thread, work);
    context.bytes += static_cast<std::uint64_t>(before - context.deficit);
    if (!context.active) return turn;
    if (!write_read_index(context)) return fail_read_index(context, thread);
    if (turn != Turn::kAgain || turns == kTurnsTogether || !goes_on(thread)) return turn;
    context.deficit = std::min<std::int64_t>(context.deficit, 0) + parts_.options.turn_bytes;
  }
}

/// True if neither another context nor the control thread waits: cached lookups are still valid.
bool RingProcessor::goes_on(const ThreadState& thread) {
  return thread.pool != nullptr && !thread.watches && !thread.pool->wanted();
}

TurnEnd RingProcessor::prepare_turn(Context& context, ThreadState& thread) {
  if (context.entry_age != parts_.contexts.update_count()) [[unlikely]] {
    if (const auto end = refresh(context, thread)) return *end;
  }
  context.space = parts_.memory.select(context.entry.pasid);
  context.ring = context.space.place(context.entry.ds_ring_ptr,
                                     context.entry.ds_ring_sz * spec::kDescriptorSize);
  if (DescriptorFaults::affects(context)) [[unlikely]] {
    if (const auto end = parts_.faults.hold(context)) return *end;
  }
  // The state changes only between turns: FunctionState::enter() waits for the workers.
  thread.begins = parts_.registers.gsv() == spec::fn_gsv::GSV_ACTIVE;
  thread.rules = header_rules(parts_.registers, context.entry);
  express_.prepare(thread.express, thread.rules, context.entry);
  // Other work limits the control thread's turns.
  thread.express.advance = thread.worker ? parts_.options.turn_bytes / 4 : 0;
  return check_state(context, thread);
}

/// The state is read once per turn: while it is CXTV_RUN, software may not change it.
TurnEnd RingProcessor::check_state(Context& context, const ThreadState& thread) {
  if (context.stop.begun) return std::nullopt;
  const auto state = parts_.tables.state_of(context.entry);
  if (!state) return fail(context, thread, state.error(), std::nullopt);
  if (*state == spec::cxtv::CXTV_RUN || context.execution.executing) return std::nullopt;
  if (thread.worker) return Turn::kHandBack;
  parts_.stops.drop(context);  // SDXI 4.2.6: software took the context away
  return Turn::kIdle;
}

/// SDXI 5.3 step 9b: Read_Index need not reach memory immediately, but often enough for producers.
/// Descriptors before the index written have completed.
bool RingProcessor::write_read_index(Context& context) {
  const auto& execution = context.execution;
  const auto index = execution.executing ? execution.index : context.read_index;
  if (index == context.read_index_written) return true;
  if (!context.space.store64(context.entry.read_index(), index)) return false;
  context.read_index_written = index;
  return true;
}

/// Step 4: compares Write_Index with Read_Index.
TurnEnd RingProcessor::read_write_index(Context& context, const ThreadState& thread) {
  const auto at = context.entry.write_index_ptr;
  const auto write_index = context.space.load64(at);
  if (!write_index) {
    return fail_access(context, thread, err_step::ERRV_WRT_IDX, at, "Write_Index cannot be read",
                       std::nullopt);
  }
  const bool below = *write_index < context.read_index;
  if (below || *write_index - context.read_index > context.entry.ds_ring_sz) {
    return fail(context, thread,
                invalid(err_step::ERRV_WRT_IDX, err_class::ILLEGAL_RING_INDEX,
                        below ? "Write_Index is below Read_Index"
                              : "Write_Index is more than the ring above Read_Index",
                        "SDXI 5.3", *write_index),
                std::nullopt);
  }
  context.write_index = *write_index;
  if (context.read_index == context.write_index) return Turn::kIdle;
  return std::nullopt;
}

/// Step 4. Read_Index is written for producers at the end of a turn, and at intervals before.
TurnEnd RingProcessor::look_for_work(Context& context, const ThreadState& thread) {
  const bool none = context.read_index == context.write_index;
  if (none || context.read_index - context.read_index_written >= Express::kTogether) {
    if (!write_read_index(context)) return fail_read_index(context, thread);
  }
  return none ? read_write_index(context, thread) : std::nullopt;
}

/// Executes descriptors on the fast path while they qualify. parse() repeats the one that does not.
TurnEnd RingProcessor::go_express(Context& context, ThreadState& thread) {
  for (bool more = true; more && context.deficit > 0;) {
    if (const auto end = look_for_work(context, thread)) return end;
    more = express_.run(context, thread.express);
    pay_remote(context, thread);
  }
  return std::nullopt;
}

/// Steps 4 and 5 for one descriptor. SDXI 5.4: it is at Read_Index, below Write_Index.
TurnEnd RingProcessor::fetch(Context& context, const ThreadState& thread) {
  if (const auto end = look_for_work(context, thread)) return end;
  auto& descriptor = context.execution.descriptor;
  const auto at = context.entry.descriptor(context.read_index);
  // The first word is read first: the bytes after the valid bit belong to the producer until it is
  // set.
  if (context.ring != nullptr) {
    load_words(context.ring + (at - context.entry.ds_ring_ptr), descriptor);
  } else if (!context.space.load_words(at, descriptor)) {
    return fail_access(context, thread, err_step::ERRV_DSC_GEN, at, "the descriptor cannot be read",
                       context.read_index);
  }
  if (!is_valid(descriptor)) return Turn::kWaitValid;
  return std::nullopt;
}

/// Step 8: writes the first byte of the copied header, in which vl is 0 now, back to the ring.
inline bool RingProcessor::clear_valid(const Context& context) {
  const auto header = context.execution.descriptor[0];
  const auto at = context.entry.descriptor(context.read_index);
  if (context.ring != nullptr) {
    store_cleared_valid(context.ring + (at - context.entry.ds_ring_ptr), header);
    return true;
  }
  const bool cleared = context.space.store8(at, static_cast<std::uint8_t>(header));
  order_after_valid();
  return cleared;
}

/// Steps 4 to 9 of the parsing loop. If the turn continues, the descriptor is in context.execution.
[[gnu::always_inline]] inline TurnEnd RingProcessor::parse(Context& context,
                                                           const ThreadState& thread) {
  if (const auto end = fetch(context, thread)) return end;
  // The control thread injects the faults.
  if (thread.worker && parts_.faults.armed()) [[unlikely]]
    return Turn::kHandBack;
  const auto index = context.read_index;
  auto& execution = context.execution;
  // From here on only the copy is used: the producer may rewrite the ring.
  const util::MutableView<spec::dsc_header> header(execution.descriptor);
  const auto* operation = accept_header(thread.rules, header);
  if (operation == nullptr || !operation->by_worker || operation->raises_interrupt) [[unlikely]] {
    if (const auto end = prepare(context, thread, operation)) return end;
  }
  // Fence: every earlier descriptor of this context has completed, because only one executes at a
  // time.
  if (context.ring == nullptr) [[unlikely]]
    note(context, operation->name);
  header.set(spec::dsc_header::vl, 0);
  if (!clear_valid(context)) [[unlikely]] {
    return fail_access(context, thread, err_step::ERRV_DSC_GEN, context.entry.descriptor(index),
                       "the valid bit cannot be cleared", index);
  }
  execution.operation = operation;
  execution.index = index;
  execution.done = 0;
  execution.ticket = 0;
  execution.executing = true;
  execution.executed = false;
  ++context.read_index;
  context.deficit -= parts_.options.descriptor_bytes;
  if (!thread.worker && parts_.faults.armed()) [[unlikely]]
    return parts_.faults.inject(context);
  return std::nullopt;
}

Work RingProcessor::make_work(const Context& context, const ThreadState& thread) {
  return {.registers = parts_.registers,
          .context = context.entry,
          .space = context.space,
          .keys = parts_.keys,
          .interrupts = parts_.interrupts,
          .contexts = parts_.control,
          .self = parts_.self,
          .group = parts_.group,
          .thread = thread,
          .atomic_requests = parts_.memory.atomic_requests_enabled(),
          .budget = 0};
}

/// Completion phase.
[[gnu::always_inline]] inline TurnEnd RingProcessor::finish(Context& context,
                                                            const ThreadState& thread, Work& work) {
  auto& execution = context.execution;
  const bool completed =
      execution.injected.any()
          ? parts_.faults.complete(context)
          : parts_.completions.complete(context.space,
                                        util::View<spec::dsc_generic>(execution.descriptor));
  if (!completed) [[unlikely]] {
    return fail_completion(context, thread);
  }
  execution.executing = false;
  ++context.descriptors;
  if (execution.operation->type == spec::dsc_type::ADMIN_GRP) {
    return follow_up(context, thread, work);
  }
  return std::nullopt;
}

/// Execution phase: as much of the descriptor as the turn allows.
[[gnu::always_inline]] inline TurnEnd RingProcessor::execute(Context& context,
                                                             const ThreadState& thread,
                                                             Work& work) {
  auto& execution = context.execution;
  if (!execution.executed) {
    const auto budget = std::max<std::int64_t>(context.deficit, 1);
    work.budget = budget;
    const auto& operation = *execution.operation;
    const auto progress =
        operation.by_worker ? operation.execute(work, execution) : call(context, work);
    // The operation may have ended the context: a reset cannot happen here, but a halt can.
    if (!context.active || !execution.executing) return std::nullopt;
    context.deficit -= budget - work.budget;
    if (!progress) return fail_execution(context, thread, progress.error());
    if (*progress == Progress::kWaiting) return Turn::kWaitOthers;
    if (*progress != Progress::kDone) return std::nullopt;
    execution.executed = true;
  }
  return finish(context, thread, work);
}

/// Charges accesses through messages. The host may have changed its mappings meanwhile.
inline void RingProcessor::pay_remote(Context& context, ThreadState& thread) {
  const auto cost = remote_cost();
  if (cost == 0) [[likely]]
    return;
  context.deficit -= cost;
  thread.express.forget();
}

Turn RingProcessor::process(Context& context, ThreadState& thread, Work& work) {
  const auto& execution = context.execution;
  while (context.active && context.deficit > 0) {
    if (!execution.executing) {
      if (context.stop.begun) {
        if (context.stop.hang != 0) return parts_.faults.hold(context).value_or(Turn::kAgain);
        parts_.stops.finish(context);
        return Turn::kIdle;
      }
      // The function stop will reach this context.
      if (!thread.begins) [[unlikely]]
        return thread.worker ? Turn::kHandBack : Turn::kIdle;
      // A turn of one descriptor takes the slow path.
      if (context.ring != nullptr && !thread.one_descriptor) {
        if (const auto end = go_express(context, thread)) return *end;
        if (context.deficit <= 0) break;
      }
      if (const auto end = parse(context, thread)) return *end;
    }
    if (const auto end = execute(context, thread, work)) return *end;
    pay_remote(context, thread);
    if (thread.one_descriptor && !execution.executing) break;
  }
  return Turn::kAgain;
}

}  // namespace softhca::sdxi
