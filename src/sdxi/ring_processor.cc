#include "sdxi/ring_processor.h"

#include <algorithm>

#include "sdxi/budget.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

bool is_valid(std::span<const std::byte> descriptor) {
  return util::View<spec::dsc_header>(descriptor).get(spec::dsc_header::vl) != 0;
}

/// SDXI 5.3 step 5: what is behind the valid bit is the producer's until it is set. False, then.
bool take_descriptor(const std::byte* slot, std::array<std::byte, spec::kDescriptorSize>& out) {
  load_words(slot, std::span(out).first<8>());
  if (!is_valid(out)) return false;
  load_descriptor_body(slot, out);
  return true;
}

}  // namespace

Turn RingProcessor::take_turn(Context& context, ThreadState& thread) {
  if (const auto end = prepare_turn(context, thread)) return *end;
  auto work = make_work(context, thread);
  const auto before = context.deficit;
  const auto turn = process(context, thread, work);
  context.bytes += static_cast<std::uint64_t>(before - context.deficit);
  if (!context.active || write_read_index(context)) return turn;
  return fail_read_index(context, thread);
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
  thread.taken = thread.fetched = 0;
  thread.rules = header_rules(parts_.registers, context.entry);
  return check_state(context, thread);
}

/// The state is looked at once in a turn: while it is CXTV_RUN software may not change it.
TurnEnd RingProcessor::check_state(Context& context, const ThreadState& thread) {
  if (context.stopping) return std::nullopt;
  const auto state = parts_.tables.state_of(context.entry);
  if (!state) return fail(context, thread, state.error(), std::nullopt);
  if (*state == spec::cxtv::CXTV_RUN || context.execution.executing) return std::nullopt;
  if (thread.worker) return Turn::kHandBack;
  parts_.stops.drop(context);  // SDXI 4.2.6: software took the context away
  return Turn::kIdle;
}

/// SDXI 5.3 step 9b: Read_Index need not be in memory at once, but often enough for producers. What
/// is there has completed.
bool RingProcessor::write_read_index(Context& context) {
  const auto& execution = context.execution;
  const auto index = execution.executing ? execution.index : context.read_index;
  if (index == context.read_index_written) return true;
  if (!context.space.store64(context.entry.read_index(), index)) return false;
  context.read_index_written = index;
  return true;
}

/// Step 4: Write_Index against Read_Index.
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

/// Steps 4 and 5 for as many descriptors as lie together and are valid: at least one, or the turn
/// ends. SDXI 5.4: they may be fetched up to Write_Index; what is not valid yet is not taken, and
/// what a turn leaves over is fetched again in the next.
TurnEnd RingProcessor::fetch(Context& context, ThreadState& thread) {
  if (!write_read_index(context)) return fail_read_index(context, thread);
  const auto index = context.read_index;
  if (index == context.write_index) {
    if (const auto end = read_write_index(context, thread)) return end;
  }
  thread.taken = thread.fetched = 0;
  if (context.ring == nullptr) return fetch_one(context, thread);
  const auto slot = index % context.entry.ds_ring_sz;
  const auto together =
      thread.one_descriptor
          ? 1
          : std::min<std::uint64_t>({context.write_index - index, context.entry.ds_ring_sz - slot,
                                     ThreadState::kBatch});
  auto* from = context.ring + slot * spec::kDescriptorSize;
  thread.slots = from;
  // The lines will be written as well, to clear vl: one transfer from the producer's cache for
  // both.
  __builtin_prefetch(from, 1);
  while (thread.fetched < together) {
    auto& descriptor = thread.batch[thread.fetched];
    if (!take_descriptor(from + thread.fetched * spec::kDescriptorSize, descriptor)) break;
    if (thread.fetched++ == 0) {
      for (std::uint64_t i = 1; i < together; ++i) {
        __builtin_prefetch(from + i * spec::kDescriptorSize, 1);
      }
    }
  }
  if (thread.fetched == 0) return Turn::kWaitValid;
  return std::nullopt;
}

/// The same where the ring is not one piece of local memory.
TurnEnd RingProcessor::fetch_one(Context& context, ThreadState& thread) {
  const auto at = context.entry.descriptor(context.read_index);
  if (!context.space.load_words(at, thread.batch[0])) {
    return fail_access(context, thread, err_step::ERRV_DSC_GEN, at, "the descriptor cannot be read",
                       context.read_index);
  }
  if (!is_valid(thread.batch[0])) return Turn::kWaitValid;
  thread.slots = nullptr;
  thread.fetched = 1;
  return std::nullopt;
}

/// Step 8: writes the first byte of the copied header, whose vl is 0 now, back to the ring.
inline bool RingProcessor::clear_valid(const Context& context, const ThreadState& thread) {
  const auto byte = static_cast<std::uint8_t>(context.execution.descriptor[0]);
  if (thread.slots == nullptr) {
    return context.space.store8(context.entry.descriptor(context.read_index), byte);
  }
  auto* slot = thread.slots + (thread.taken - 1) * spec::kDescriptorSize;
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(slot), byte, __ATOMIC_RELEASE);
  return true;
}

/// Steps 4 to 9 of the parsing loop. If the turn goes on, the descriptor is in context.execution.
[[gnu::always_inline]] inline TurnEnd RingProcessor::parse(Context& context, ThreadState& thread) {
  if (thread.taken == thread.fetched) {
    if (const auto end = fetch(context, thread)) return end;
  }
  // Faults are injected by the control thread.
  if (thread.worker && parts_.faults.armed()) [[unlikely]]
    return Turn::kHandBack;
  const auto index = context.read_index;
  auto& execution = context.execution;
  // From here on only the copy counts: the producer may rewrite the ring.
  execution.descriptor = thread.batch[thread.taken++];
  const util::MutableView<spec::dsc_header> header(execution.descriptor);
  const auto* operation = accept_header(thread.rules, header);
  if (operation == nullptr || !operation->by_worker) [[unlikely]] {
    if (const auto end = prepare(context, thread, operation)) return end;
  }
  // Fence: every earlier descriptor of this context has completed, because one executes at a time.
  header.set(spec::dsc_header::vl, 0);
  if (!clear_valid(context, thread)) [[unlikely]] {
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
          .bounce = thread.bounce,
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
    // The operation may have ended the context: a reset cannot come in here, but a halt can.
    if (!context.active || !execution.executing) return std::nullopt;
    context.deficit -= budget - work.budget;
    if (!progress) return fail_execution(context, thread, progress.error());
    if (*progress == Progress::kWaiting) return Turn::kWaitOthers;
    if (*progress != Progress::kDone) return std::nullopt;
    execution.executed = true;
  }
  return finish(context, thread, work);
}

Turn RingProcessor::process(Context& context, ThreadState& thread, Work& work) {
  const auto& execution = context.execution;
  while (context.active && context.deficit > 0) {
    if (!execution.executing) {
      if (context.stopping) {
        if (context.hang != 0) return parts_.faults.hold(context).value_or(Turn::kAgain);
        parts_.stops.finish(context);
        return Turn::kIdle;
      }
      if (const auto end = parse(context, thread)) return *end;
    }
    if (const auto end = execute(context, thread, work)) return *end;
    context.deficit -= remote_cost();
    if (thread.one_descriptor && !execution.executing) break;
  }
  return Turn::kAgain;
}

}  // namespace softhca::sdxi
