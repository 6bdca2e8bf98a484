// Descriptor processing (SDXI 5.3): the parsing loop, execution and completion of one context.
#include <algorithm>
#include <cassert>

#include "sdxi/completion.h"
#include "sdxi/contexts.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

Refusal inaccessible(err_step step, const AddressSpace& space, Iova at, std::string_view reason) {
  const auto fault = space.explain(at);
  return {.step = step,
          .sub_step = fault.sub_step,
          .err_class = fault.err_class,
          .reason = reason,
          .section = "SDXI 5.3",
          .value = at};
}

Refusal read_index_not_written(const Context& context) {
  return inaccessible(err_step::ERRV_CXT_STS, context.space, context.entry.read_index(),
                      "CXT_STS.read_index cannot be written");
}

bool is_valid(std::span<const std::byte> descriptor) {
  return util::View<spec::dsc_header>(descriptor).get(spec::dsc_header::vl) != 0;
}

/// What one context of a DSC_CXT_START costs of the turn's budget when it is signaled.
constexpr std::int64_t kSignalCost = 16;

/// SDXI 5.3 step 5: what is behind the valid bit is the producer's until it is set. False, then.
bool take_descriptor(const std::byte* slot, std::array<std::byte, spec::kDescriptorSize>& out) {
  load_words(slot, std::span(out).first<8>());
  if (!is_valid(out)) return false;
  load_descriptor_body(slot, out);
  return true;
}

}  // namespace

/// One turn. What was done of the ring is in CXT_STS.read_index at its end.
Turn Contexts::work(Context& context, Hands& hands) {
  context.space = parts_.memory.select(context.entry.pasid);
  context.ring = context.space.place(context.entry.ds_ring_ptr,
                                     context.entry.ds_ring_sz * spec::kDescriptorSize);
  if (context.hang != 0 || context.execution.injected.any()) [[unlikely]] {
    if (const auto end = hold(context)) return *end;
  }
  hands.taken = hands.fetched = 0;
  hands.rules = header_rules(parts_.registers, context.entry);
  if (const auto end = check_state(context, hands)) return *end;
  auto work = make_work(context, hands);
  const auto before = context.deficit;
  const auto turn = process(context, hands, work);
  context.bytes += static_cast<std::uint64_t>(before - context.deficit);
  if (!context.active || write_read_index(context)) return turn;
  return fail(context, hands, read_index_not_written(context), std::nullopt);
}

/// The state is looked at once in a turn: while it is CXTV_RUN software may not change it.
Contexts::End Contexts::check_state(Context& context, const Hands& hands) {
  if (context.stopping) return std::nullopt;
  const auto state = parts_.tables.state_of(context.entry);
  if (!state) return fail(context, hands, state.error(), std::nullopt);
  if (*state == spec::cxtv::CXTV_RUN || context.execution.executing) return std::nullopt;
  if (hands.worker) return Turn::kHandBack;
  drop(context);  // SDXI 4.2.6: software took the context away
  return Turn::kIdle;
}

/// The context cannot go on. A worker leaves everything as it is, and the control thread finds the
/// same again.
Turn Contexts::fail(Context& context, const Hands& hands, const Refusal& refusal,
                    std::optional<std::uint64_t> descriptor) {
  if (hands.worker) return Turn::kHandBack;
  stop_for_error(context, refusal, descriptor);
  return Turn::kIdle;
}

/// SDXI 5.3 step 9b: Read_Index need not be in memory at once, but often enough for producers. What
/// is there has completed.
bool Contexts::write_read_index(Context& context) {
  const auto& execution = context.execution;
  const auto index = execution.executing ? execution.index : context.read_index;
  if (index == context.read_index_written) return true;
  if (!context.space.store64(context.entry.read_index(), index)) return false;
  context.read_index_written = index;
  return true;
}

/// Step 4: Write_Index against Read_Index.
Contexts::End Contexts::read_write_index(Context& context, const Hands& hands) {
  const auto at = context.entry.write_index_ptr;
  const auto write_index = context.space.load64(at);
  if (!write_index) {
    return fail(
        context, hands,
        inaccessible(err_step::ERRV_WRT_IDX, context.space, at, "Write_Index cannot be read"),
        std::nullopt);
  }
  const bool below = *write_index < context.read_index;
  if (below || *write_index - context.read_index > context.entry.ds_ring_sz) {
    return fail(context, hands,
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
Contexts::End Contexts::fetch(Context& context, Hands& hands) {
  if (!write_read_index(context)) {
    return fail(context, hands, read_index_not_written(context), std::nullopt);
  }
  const auto index = context.read_index;
  if (index == context.write_index) {
    if (const auto end = read_write_index(context, hands)) return end;
  }
  hands.taken = hands.fetched = 0;
  if (context.ring == nullptr) {
    const auto at = context.entry.descriptor(index);
    if (!context.space.load_words(at, hands.batch[0])) {
      return fail(
          context, hands,
          inaccessible(err_step::ERRV_DSC_GEN, context.space, at, "the descriptor cannot be read"),
          index);
    }
    if (!is_valid(hands.batch[0])) return Turn::kWaitValid;
    hands.slots = nullptr;
    hands.fetched = 1;
    return std::nullopt;
  }
  const auto slot = index % context.entry.ds_ring_sz;
  const auto together =
      hands.one ? 1
                : std::min<std::uint64_t>({context.write_index - index,
                                           context.entry.ds_ring_sz - slot, Hands::kBatch});
  auto* from = context.ring + slot * spec::kDescriptorSize;
  hands.slots = from;
  // The lines will be written as well, to clear vl: one transfer from the producer's cache for
  // both.
  __builtin_prefetch(from, 1);
  while (hands.fetched < together) {
    auto& descriptor = hands.batch[hands.fetched];
    if (!take_descriptor(from + hands.fetched * spec::kDescriptorSize, descriptor)) break;
    if (hands.fetched++ == 0) {
      for (std::uint64_t i = 1; i < together; ++i) {
        __builtin_prefetch(from + i * spec::kDescriptorSize, 1);
      }
    }
  }
  if (hands.fetched == 0) return Turn::kWaitValid;
  return std::nullopt;
}

/// Step 8: writes the first byte of the copied header, whose vl is 0 now, back to the ring.
inline bool Contexts::clear_valid(const Context& context, const Hands& hands) {
  const auto byte = static_cast<std::uint8_t>(context.execution.descriptor[0]);
  if (hands.slots == nullptr) {
    return context.space.store8(context.entry.descriptor(context.read_index), byte);
  }
  auto* slot = hands.slots + (hands.taken - 1) * spec::kDescriptorSize;
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(slot), byte, __ATOMIC_RELEASE);
  return true;
}

Turn Contexts::fail_valid(Context& context, const Hands& hands) {
  return fail(
      context, hands,
      inaccessible(err_step::ERRV_DSC_GEN, context.space,
                   context.entry.descriptor(context.read_index), "the valid bit cannot be cleared"),
      context.read_index);
}

/// Steps 6 and 7 for what is not just accepted: `operation` is null if the header is refused.
Contexts::End Contexts::prepare(Context& context, const Hands& hands, const Operation* operation) {
  if (operation == nullptr) {
    const auto checked = check_header(parts_.registers, context.entry,
                                      util::View<spec::dsc_header>(context.execution.descriptor));
    assert(!checked);
    return fail(context, hands, checked.error(), context.read_index);
  }
  if (hands.worker) return Turn::kHandBack;
  // Software that hears of it may look at Read_Index.
  if (write_read_index(context)) return std::nullopt;
  return fail(context, hands, read_index_not_written(context), std::nullopt);
}

/// Steps 4 to 9 of the parsing loop. Nothing: the descriptor is in context.execution.
[[gnu::always_inline]] inline Contexts::End Contexts::parse(Context& context, Hands& hands) {
  if (hands.taken == hands.fetched) {
    if (const auto end = fetch(context, hands)) return end;
  }
  // Faults are injected by the control thread.
  if (hands.worker && parts_.faults.armed()) [[unlikely]]
    return Turn::kHandBack;
  const auto index = context.read_index;
  auto& execution = context.execution;
  // From here on only the copy counts: the producer may rewrite the ring.
  execution.descriptor = hands.batch[hands.taken++];
  const util::MutableView<spec::dsc_header> header(execution.descriptor);
  const auto* operation = accept_header(hands.rules, header);
  if (operation == nullptr || !operation->by_worker) [[unlikely]] {
    if (const auto end = prepare(context, hands, operation)) return end;
  }
  // Fence: every earlier descriptor of this context has completed, because one executes at a time.
  header.set(spec::dsc_header::vl, 0);
  if (!clear_valid(context, hands)) [[unlikely]] {
    return fail_valid(context, hands);
  }
  execution.operation = operation;
  execution.index = index;
  execution.done = 0;
  execution.ticket = 0;
  execution.executing = true;
  execution.executed = false;
  ++context.read_index;
  context.deficit -= parts_.options.descriptor_bytes;
  if (!hands.worker && parts_.faults.armed()) [[unlikely]]
    return inject(context);
  return std::nullopt;
}

Work Contexts::make_work(const Context& context, const Hands& hands) {
  return {.registers = parts_.registers,
          .context = context.entry,
          .space = context.space,
          .keys = parts_.keys,
          .interrupts = parts_.interrupts,
          .contexts = *this,
          .self = parts_.self,
          .group = parts_.group,
          .bounce = hands.bounce,
          .budget = 0};
}

/// What only the control thread executes.
Checked<Progress> Contexts::call(Context& context, Work& work) {
  auto& execution = context.execution;
  // Administrative operations act on other contexts. When an update has completed, no worker uses
  // what was there before (SDXI 4.3.1).
  std::optional<Alone> alone;
  if (execution.operation->type == spec::dsc_type::ADMIN_GRP) alone.emplace(*this);
  // What an operation that failed wanted at its completion is void.
  if (execution.done == 0) self_stop_.reset();
  executing_ = &context;
  auto progress = execution.operation->execute(work, execution);
  executing_ = nullptr;
  other_function_ = other_function_ || work.other_function;
  return progress;
}

/// The end of an administrative operation: what it begins after its own completion.
Contexts::End Contexts::follow_up(Context& context, const Hands& hands, Work& work) {
  if (!write_read_index(context)) {
    return fail(context, hands, read_index_not_written(context), std::nullopt);
  }
  const Alone alone(*this);
  context.deficit -= signal_started(work, context.execution) * kSignalCost;
  if (self_stop_) {
    const auto wanted = *self_stop_;
    self_stop_.reset();
    (void)stop(context.entry.number, wanted.cause, wanted.hard);
  }
  return std::nullopt;
}

Contexts::End Contexts::fail_completion(Context& context, const Hands& hands) {
  if (hands.worker) return Turn::kHandBack;
  auto& execution = context.execution;
  execution.executing = false;
  ++context.descriptors;
  return fail(context, hands,
              signal_error(context.space, util::View<spec::dsc_generic>(execution.descriptor)),
              execution.index);
}

Contexts::End Contexts::fail_execution(Context& context, const Hands& hands,
                                       const Refusal& refusal) {
  if (hands.worker) return Turn::kHandBack;
  auto& execution = context.execution;
  execution.executing = false;
  ++context.descriptors;
  complete_with_error(parts_.registers, context.space,
                      util::View<spec::dsc_generic>(execution.descriptor));
  return fail(context, hands, refusal, execution.index);
}

/// Completion phase.
[[gnu::always_inline]] inline Contexts::End Contexts::finish(Context& context, const Hands& hands,
                                                             Work& work) {
  auto& execution = context.execution;
  const bool completed = execution.injected.any()
                             ? complete_by_rule(context)
                             : complete(parts_.registers, context.space,
                                        util::View<spec::dsc_generic>(execution.descriptor));
  if (!completed) [[unlikely]] {
    return fail_completion(context, hands);
  }
  execution.executing = false;
  ++context.descriptors;
  if (execution.operation->type == spec::dsc_type::ADMIN_GRP) {
    return follow_up(context, hands, work);
  }
  return std::nullopt;
}

/// Execution phase: as much of the descriptor as the turn allows.
[[gnu::always_inline]] inline Contexts::End Contexts::execute(Context& context, const Hands& hands,
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
    if (!progress) return fail_execution(context, hands, progress.error());
    if (*progress != Progress::kDone) return std::nullopt;
    execution.executed = true;
  }
  return finish(context, hands, work);
}

Turn Contexts::process(Context& context, Hands& hands, Work& work) {
  const auto& execution = context.execution;
  while (context.active && context.deficit > 0) {
    if (!execution.executing) {
      if (context.stopping) {
        end_stop(context);
        return Turn::kIdle;
      }
      if (const auto end = parse(context, hands)) return *end;
    }
    const auto before = context.deficit;
    if (const auto end = execute(context, hands, work)) return *end;
    // An operation that waits for others leaves its budget alone.
    if (context.active && execution.executing && context.deficit == before) break;
    if (hands.one && !execution.executing) break;
  }
  return Turn::kAgain;
}

}  // namespace softhca::sdxi
