// Descriptor processing (SDXI 5.3): the parsing loop, execution and completion of one context.
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

}  // namespace

/// One turn. The state is looked at once: while it is CXTV_RUN software may not change it.
Contexts::Turn Contexts::work(Context& context) {
  context.space = parts_.memory.select(context.entry.pasid);
  context.ring = context.space.place(context.entry.ds_ring_ptr,
                                     context.entry.ds_ring_sz * spec::kDescriptorSize);
  if (context.hang != 0 || context.execution.injected.any()) {
    if (const auto end = hold(context)) return *end;
  }
  if (!context.stopping) {
    const auto state = parts_.tables.state_of(context.entry);
    if (!state) {
      stop_for_error(context, state.error(), std::nullopt);
      return Turn::kIdle;
    }
    if (*state != spec::cxtv::CXTV_RUN && !context.execution.executing) {
      drop(context);  // SDXI 4.2.6: software took the context away
      return Turn::kIdle;
    }
  }
  while (context.active && context.deficit > 0) {
    if (!context.execution.executing) {
      if (context.stopping) {
        end_stop(context);
        return Turn::kIdle;
      }
      if (const auto end = parse(context)) return *end;
    }
    const auto before = context.deficit;
    execute(context);
    statistics_.bytes += static_cast<std::uint64_t>(before - context.deficit);
    // An operation that waits for others leaves its budget alone.
    if (context.active && context.execution.executing && context.deficit == before) break;
  }
  return Turn::kAgain;
}

/// Takes the descriptor at `at` over into the execution.
bool Contexts::read_descriptor(Context& context, Iova at) {
  if (context.ring == nullptr) {
    return context.space.load_words(at, context.execution.descriptor);
  }
  load_words(context.ring + (at - context.entry.ds_ring_ptr), context.execution.descriptor);
  return true;
}

/// Writes the first byte of the copied header, whose vl is 0 now, back to the ring.
bool Contexts::clear_valid(Context& context, Iova at) {
  const auto byte = static_cast<std::uint8_t>(context.execution.descriptor[0]);
  if (context.ring == nullptr) return context.space.store8(at, byte);
  auto* slot = context.ring + (at - context.entry.ds_ring_ptr);
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(slot), byte, __ATOMIC_RELEASE);
  return true;
}

/// Steps 4 to 9 of the parsing loop. Nothing: the descriptor is in context.execution.
std::optional<Contexts::Turn> Contexts::parse(Context& context) {
  const auto index = context.read_index;
  if (index == context.write_index) {
    if (!read_write_index(context)) return Turn::kIdle;
    if (index == context.write_index) return Turn::kIdle;
  }
  const auto at = context.entry.descriptor(index);
  auto& execution = context.execution;
  if (!read_descriptor(context, at)) {
    stop_for_error(
        context,
        inaccessible(err_step::ERRV_DSC_GEN, context.space, at, "the descriptor cannot be read"),
        index);
    return Turn::kIdle;
  }
  // From here on only the copy counts: the producer may rewrite the ring.
  const util::MutableView<spec::dsc_header> header(execution.descriptor);
  if (header.get(spec::dsc_header::vl) == 0) return Turn::kWaitValid;

  const auto operation = check_header(parts_.registers, context.entry, header);
  if (!operation) {
    stop_for_error(context, operation.error(), index);
    return Turn::kIdle;
  }
  // Fence: every earlier descriptor of this context has completed, because one executes at a time.
  header.set(spec::dsc_header::vl, 0);
  if (!clear_valid(context, at)) {
    stop_for_error(
        context,
        inaccessible(err_step::ERRV_DSC_GEN, context.space, at, "the valid bit cannot be cleared"),
        index);
    return Turn::kIdle;
  }
  execution.operation = *operation;
  execution.index = index;
  execution.done = 0;
  execution.ticket = 0;
  execution.executing = true;
  ++context.read_index;
  context.deficit -= parts_.options.descriptor_bytes;
  statistics_.bytes += parts_.options.descriptor_bytes;
  if (parts_.faults.armed()) return inject(context);
  return std::nullopt;
}

/// Step 4: Write_Index against Read_Index. False if the context was stopped.
bool Contexts::read_write_index(Context& context) {
  const auto write_index = context.space.load64(context.entry.write_index_ptr);
  if (!write_index) {
    stop_for_error(context,
                   inaccessible(err_step::ERRV_WRT_IDX, context.space,
                                context.entry.write_index_ptr, "Write_Index cannot be read"),
                   std::nullopt);
    return false;
  }
  const bool below = *write_index < context.read_index;
  if (below || *write_index - context.read_index > context.entry.ds_ring_sz) {
    stop_for_error(context,
                   invalid(err_step::ERRV_WRT_IDX, err_class::ILLEGAL_RING_INDEX,
                           below ? "Write_Index is below Read_Index"
                                 : "Write_Index is more than the ring above Read_Index",
                           "SDXI 5.3", *write_index),
                   std::nullopt);
    return false;
  }
  context.write_index = *write_index;
  return true;
}

Work Contexts::make_work(Context& context) {
  return {.registers = parts_.registers,
          .context = context.entry,
          .space = context.space,
          .keys = parts_.keys,
          .interrupts = parts_.interrupts,
          .contexts = *this,
          .self = parts_.self,
          .group = parts_.group,
          .bounce = bounce_,
          .budget = std::max<std::int64_t>(context.deficit, 1)};
}

/// Execution phase: as much of the descriptor as the turn allows.
void Contexts::execute(Context& context) {
  auto& execution = context.execution;
  auto work = make_work(context);
  const auto budget = work.budget;
  executing_ = &context;
  const auto progress = execution.operation->execute(work, execution);
  executing_ = nullptr;
  other_function_ = other_function_ || work.other_function;
  // The operation may have ended the context: a reset cannot come in here, but a halt can.
  if (!context.active || !execution.executing) return;
  context.deficit -= budget - work.budget;
  if (!progress) {
    execution.executing = false;
    ++statistics_.descriptors;
    complete_with_error(parts_.registers, context.space,
                        util::View<spec::dsc_generic>(execution.descriptor));
    stop_for_error(context, progress.error(), execution.index);
    return;
  }
  if (*progress == Progress::kDone) finish(context);
}

/// Completion phase.
void Contexts::finish(Context& context) {
  auto& execution = context.execution;
  execution.executing = false;
  ++statistics_.descriptors;
  const auto completed = execution.injected.any()
                             ? complete_by_rule(context)
                             : complete(parts_.registers, context.space,
                                        util::View<spec::dsc_generic>(execution.descriptor));
  if (!completed) {
    stop_for_error(context, completed.error(), execution.index);
    return;
  }
  if (!context.space.store64(context.entry.read_index(), context.read_index)) {
    stop_for_error(context,
                   inaccessible(err_step::ERRV_CXT_STS, context.space, context.entry.read_index(),
                                "CXT_STS.read_index cannot be written"),
                   std::nullopt);
    return;
  }
  if (execution.operation->type == spec::dsc_type::ADMIN_GRP) {
    auto work = make_work(context);
    signal_started(work, execution);
    if (self_stop_) {
      const auto wanted = *self_stop_;
      self_stop_.reset();
      (void)stop(context.entry.number, wanted.cause, wanted.hard);
    }
  }
}

}  // namespace softhca::sdxi
