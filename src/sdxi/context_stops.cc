#include "sdxi/context_stops.h"

#include "sdxi/budget.h"

namespace softhca::sdxi {
namespace {

using spec::cxtv;
using spec::err_class;
using spec::err_step;

bool is_stopping(cxtv state) {
  return state == cxtv::CXTV_STOPG_SW || state == cxtv::CXTV_STOPG_FN;
}

bool is_final(cxtv state) {
  return state == cxtv::CXTV_STOP_SW || state == cxtv::CXTV_STOP_FN || state == cxtv::CXTV_ERR_FN;
}

cxtv passing_state(StopCause cause) {
  return cause == StopCause::kLocal ? cxtv::CXTV_STOPG_SW : cxtv::CXTV_STOPG_FN;
}

cxtv final_state(StopCause cause) {
  return cause == StopCause::kLocal ? cxtv::CXTV_STOP_SW : cxtv::CXTV_STOP_FN;
}

}  // namespace

Refusal state_not_written(ContextNumber number, Iova at) {
  return {.step = err_step::ERRV_CXT_STS,
          .sub_step = spec::err_sub_step::SUB_ACCESS,
          .err_class = err_class::MEMORY_ACCESS,
          .reason = "CXT_STS.state cannot be written",
          .section = "SDXI 4.3.5",
          .value = at,
          .context = number};
}

void ContextStops::halt(const ContextEntry& entry, const Refusal& refusal) {
  parts_.halt.halt(refusal, entry.number);
}

Checked<void> ContextStops::stop(ContextNumber number, StopCause cause, bool hard) {
  auto* context = parts_.contexts.find_active(number);
  if (context != nullptr && is_executing(*context)) {
    self_stop_ = SelfStop{cause, hard || (self_stop_ && self_stop_->hard)};
    return {};
  }
  // The limit was lowered while the context ran: its tables must not be accessed (SDXI 3.2), but
  // its cached state may.
  if (cause == StopCause::kFunction && context != nullptr && parts_.tables.is_above_limit(number)) {
    mark(*context, cause, hard);
    return {};
  }
  // K1, K2.
  const auto checked = parts_.tables.check(number);
  if (!checked) {
    if (context != nullptr) abandon(*context);
    if (cause == StopCause::kFunction || !checked.error().log_err) return {};
    return refuse(*checked.error().log_err);
  }
  // K3 to K5.
  if (is_stopping(checked->state) && (context == nullptr || context->stop.begun)) {
    if (context != nullptr && hard) make_hard(*context);
    return {};
  }
  if (checked->state != cxtv::CXTV_RUN) {
    if (context != nullptr) abandon(*context);  // software changed the state of a running context
    return {};
  }
  // The context is held, so that a fault rule can keep its stop from ending.
  if (context == nullptr && parts_.faults.armed()) context = hold(checked->entry);
  if (context != nullptr) {
    mark(*context, cause, hard);
  } else {
    stop_unsignaled(checked->entry, cause);
  }
  return {};
}

/// K6 to K12 in one step, for a context that was not signaled since it was started.
void ContextStops::stop_unsignaled(const ContextEntry& entry, StopCause cause) {
  if (!parts_.tables.write_state(entry, passing_state(cause)) ||
      !parts_.tables.write_state(entry, final_state(cause))) {
    halt(entry, state_not_written(entry.number, entry.state()));  // K9b
  }
}

/// Activates a context that was not signaled; null if its Read_Index cannot be read.
Context* ContextStops::hold(const ContextEntry& entry) {
  auto& context = parts_.contexts.activate(entry, parts_.memory.select(entry.pasid));
  if (load_read_index(context)) return &context;
  drop(context);
  return nullptr;
}

/// K6 to K9 for an active context.
void ContextStops::mark(Context& context, StopCause cause, bool hard) {
  const pcie::Paused workers_wait(&parts_.gate);
  if (context.stop.begun) {
    if (hard) make_hard(context);
    return;
  }
  const auto& entry = context.entry;
  if (!parts_.tables.write_state(entry, passing_state(cause))) {
    return halt(entry, state_not_written(entry.number, entry.state()));
  }
  parts_.scheduler.recall(context);  // the control thread ends it
  context.space = parts_.memory.select(context.entry.pasid);
  context.stop.begun = true;
  context.stop.cause = cause;
  context.stop.hard = hard;
  stopping_.push(context);
  if (untimed_ == nullptr) untimed_ = &context;
  if (parts_.faults.armed()) {
    context.stop.hang = parts_.faults.begin_stop(parts_.options.name, entry.number, hard);
  }
  if (context.stop.hang == 0 && !context.execution.executing) {
    finish(context);
  } else if (context.stop.hang == 0 && hard) {
    abort(context);
  } else {
    parts_.scheduler.enqueue(context);
  }
}

/// A hard stop after a soft one (SDXI 4.3.5).
void ContextStops::make_hard(Context& context) {
  context.stop.hard = true;
  if (context.stop.hang != 0) {
    if (parts_.faults.holds_stop(context.stop.hang, true)) return;
    context.stop.hang = 0;
    parts_.scheduler.enqueue(context);
  }
  abort(context);
}

void ContextStops::finish(Context& context) {
  const auto entry = context.entry;
  const bool written = context.space.store64(entry.read_index(), context.read_index) &&
                       parts_.tables.write_state(entry, final_state(context.stop.cause));
  drop(context);
  if (!written) halt(entry, state_not_written(entry.number, entry.state()));
}

/// SDXI 4.3.5: an outstanding descriptor is aborted because of a stop action.
void ContextStops::abort(Context& context) {
  if (!context.execution.executing || is_executing(context)) return;
  stop_for_error(context,
                 {.step = err_step::ERRV_DSC_GEN,
                  .err_class = err_class::GENERIC,
                  .reason = "the descriptor was aborted by a stop action",
                  .section = "SDXI 4.3.5",
                  .value = context.execution.done},
                 context.execution.index);
}

/// SDXI 4.2.6, 4.3.2: the record has no reaction, because CXT_STS is not cached any more and must
/// not be changed.
void ContextStops::abandon(Context& context) {
  const pcie::Paused workers_wait(&parts_.gate);
  if (!context.execution.executing) return drop(context);
  const ErrorReport report{
      .refusal = {.step = err_step::ERRV_DSC_GEN,
                  .err_class = err_class::GENERIC,
                  .reason = "the descriptor was aborted: software changed its running context",
                  .section = "SDXI 4.2.6",
                  .value = context.execution.done},
      .reaction = spec::err_reaction::RE_INFORMATIVE,
      .context = context.entry.number,
      .descriptor = context.execution.index};
  fail_outstanding(context);
  drop(context);
  parts_.log.record(report);
}

/// Completes the outstanding descriptor with an error.
void ContextStops::fail_outstanding(Context& context) {
  if (!context.execution.executing) return;
  context.execution.executing = false;
  ++context.descriptors;
  context.space = parts_.memory.select(context.entry.pasid);
  parts_.completions.complete_with_error(
      context.space, util::View<spec::dsc_generic>(context.execution.descriptor));
}

void ContextStops::stop_for_error(Context& context, const Refusal& refusal,
                                  std::optional<std::uint64_t> descriptor) {
  const pcie::Paused workers_wait(&parts_.gate);
  const auto entry = context.entry;
  const auto read_index = context.read_index;
  const bool was_stopping = context.stop.begun;
  ++errors_;
  fail_outstanding(context);
  drop(context);
  // K1, except for cached state, of which there must be none (SDXI 4.3.2 step 2). Software caused a
  // reserved encoding (SDXI 4.2.6); the stop ends here.
  const auto state = parts_.tables.read_state(entry);
  if (!state) return halt(entry, refusal);  // K2b: what cannot be reached cannot be stopped
  const bool ended = is_final(*state);      // K3
  const auto space = parts_.memory.select(entry.pasid);
  const bool serialized = !ended &&
                          (was_stopping || parts_.tables.write_state(entry, cxtv::CXTV_STOPG_FN)) &&
                          space.store64(entry.read_index(), read_index);
  if (!refusal.logged) {
    parts_.log.record({.refusal = refusal,
                       .reaction = spec::err_reaction::RE_CONTEXT_STOPPED,
                       .context = entry.number,
                       .descriptor = descriptor});
  }
  if (ended) return;
  if (!serialized || !parts_.tables.write_state(entry, cxtv::CXTV_ERR_FN)) {
    halt(entry, state_not_written(entry.number, entry.state()));
  }
}

void ContextStops::drop(Context& context) {
  parts_.scheduler.forget(context);
  if (context.stop.begun) {
    if (untimed_ == &context) untimed_ = context.stop_after;
    stopping_.remove(context);
    ++ended_;
  }
  context.stop.begun = false;
  parts_.contexts.deactivate(context);
  context.waits_for_valid = context.waits_for_others = false;
  context.execution.executing = false;
  context.execution.injected = {};
  context.stop.hang = 0;
}

void ContextStops::drop_all() {
  const pcie::Paused workers_wait(&parts_.gate);
  parts_.contexts.for_each_active([this](Context& context) { drop(context); });
  self_stop_.reset();
}

std::int64_t ContextStops::look_at_deadlines(util::Time now) {
  constexpr auto kMost = 64 * kContextCost;
  // The wait begins with the first look after the stop, because the caller of stop() had no time to
  // pass.
  for (; untimed_ != nullptr; untimed_ = untimed_->stop_after) {
    if (!untimed_->stop.abort_at) untimed_->stop.abort_at = now + parts_.options.soft_stop_timeout;
  }
  std::int64_t used = 0;
  auto* context = stopping_.first();
  while (context != nullptr && *context->stop.abort_at <= now && used < kMost) {
    auto* after = context->stop_after;
    if (context->stop.hang == 0) {
      abort(*context);
      used += kContextCost + remote_cost();
    }
    if (stopping_.empty()) break;  // the function has halted
    context = after;
  }
  return used;
}

bool ContextStops::any_in(ContextNumber first, ContextNumber last, bool except_admin,
                          std::int64_t& budget) const {
  for (const auto* context = stopping_.first(); context != nullptr; context = context->stop_after) {
    budget -= kStopCheckCost;
    const auto number = context->entry.number;
    if (number >= first && number <= last && !(number == 0 && except_admin)) return true;
  }
  return false;
}

void ContextStops::operation_begins(const Context& context, bool first_call) {
  executing_ = &context;
  if (first_call) self_stop_.reset();
}

void ContextStops::operation_completed(const Context& context) {
  if (!self_stop_) return;
  const auto wanted = *self_stop_;
  self_stop_.reset();
  (void)stop(context.entry.number, wanted.cause, wanted.hard);
}

}  // namespace softhca::sdxi
