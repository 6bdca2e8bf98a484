// Starting and stopping contexts (SDXI 6.6.3, 4.3.5).
#include "sdxi/completion.h"
#include "sdxi/contexts.h"

namespace softhca::sdxi {
namespace {

using spec::cxtv;
using spec::err_class;
using spec::err_step;

bool is_stopping(cxtv state) {
  return state == cxtv::CXTV_STOPG_SW || state == cxtv::CXTV_STOPG_FN;
}

Refusal state_not_written(ContextNumber number, Iova at) {
  return {.step = err_step::ERRV_CXT_STS,
          .sub_step = spec::err_sub_step::SUB_ACCESS,
          .err_class = err_class::MEMORY_ACCESS,
          .reason = "CXT_STS.state cannot be written",
          .section = "SDXI 4.3.5",
          .value = at,
          .context = number};
}

Refusal bad_state(ContextNumber number, cxtv state) {
  auto refusal =
      invalid(err_step::ERRV_CXT_STS, err_class::LOGICAL,
              "a context can be started from CXTV_STOP_SW, CXTV_STOP_FN and CXTV_RUN only",
              "SDXI 6.6.3", static_cast<std::uint64_t>(state));
  refusal.context = number;
  return refusal;
}

}  // namespace

Checked<void> Contexts::start(ContextNumber number, StartKind kind) {
  const bool normal = kind == StartKind::kNormal;
  // SDXI 4.2: the target function's state counts, whoever issued the operation.
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE) {
    if (!normal) return {};
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::LOGICAL,
                          "the target function is not active", "SDXI 4.2", number));
  }
  // Step 1.
  const auto checked = parts_.tables.check(number);
  if (!checked) {
    if (checked.error().log_err) return refuse(*checked.error().log_err);
    if (!normal) return {};
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::ILLEGAL_CXT_INDEX,
                          "the context to start is not valid", "SDXI 6.6.3", number));
  }
  // Steps 2 and 3.
  const auto state = checked->state;
  if (state != cxtv::CXTV_RUN && state != cxtv::CXTV_STOP_SW && state != cxtv::CXTV_STOP_FN) {
    return normal ? Checked<void>(refuse(bad_state(number, state))) : Checked<void>();
  }
  if (!normal && state == cxtv::CXTV_STOP_SW) return {};
  // Step 4, and the tables as they are now: the next doorbell is evaluated against them.
  if (auto* context = find_active(number); context != nullptr && context != executing_) {
    if (state == cxtv::CXTV_RUN && !context->stopping) {
      context->entry = checked->entry;
      context->ring = nullptr;
    } else {
      drop(*context);
    }
  }
  const auto written = parts_.tables.write_state(checked->entry, cxtv::CXTV_RUN);
  const auto now_is = parts_.tables.state_of(checked->entry);
  if (!written || !now_is || *now_is != cxtv::CXTV_RUN) {
    return refuse(state_not_written(number, checked->entry.state()));
  }
  return {};
}

Checked<void> Contexts::stop(ContextNumber number, StopCause cause, bool hard) {
  auto* context = find_active(number);
  // A DSC_CXT_STOP that is just executing in this very context: after its completion.
  if (context != nullptr && context == executing_) {
    self_stop_ = SelfStop{cause, hard || (self_stop_ && self_stop_->hard)};
    return {};
  }
  // K1, K2.
  const auto checked = parts_.tables.check(number);
  if (!checked) {
    if (cause == StopCause::kFunction || !checked.error().log_err) {
      if (context != nullptr) drop(*context);
      return {};
    }
    return refuse(*checked.error().log_err);
  }
  // K3 to K5.
  if (is_stopping(checked->state)) {
    if (context != nullptr && context->stopping && hard) make_stop_hard(*context);
    return {};
  }
  if (checked->state != cxtv::CXTV_RUN) {
    if (context != nullptr) drop(*context);  // software changed the state of a running context
    return {};
  }
  if (context == nullptr && parts_.faults.armed()) {
    activate(checked->entry);  // so that the stop can be made to hang
    context = find_active(number);
    if (context == nullptr) return {};
  }
  if (context != nullptr) return mark_stopping(*context, cause, hard);
  // K6 to K12 at once: the context is started, but was not signaled since.
  const auto passing = cause == StopCause::kLocal ? cxtv::CXTV_STOPG_SW : cxtv::CXTV_STOPG_FN;
  const auto final_state = cause == StopCause::kLocal ? cxtv::CXTV_STOP_SW : cxtv::CXTV_STOP_FN;
  if (!parts_.tables.write_state(checked->entry, passing) ||
      !parts_.tables.write_state(checked->entry, final_state)) {
    return refuse(state_not_written(number, checked->entry.state()));
  }
  return {};
}

/// K6 to K9 for a context that we hold.
Checked<void> Contexts::mark_stopping(Context& context, StopCause cause, bool hard) {
  const Alone alone(*this);
  if (context.stopping) {
    if (hard) make_stop_hard(context);
    return {};
  }
  const auto passing = cause == StopCause::kLocal ? cxtv::CXTV_STOPG_SW : cxtv::CXTV_STOPG_FN;
  if (!parts_.tables.write_state(context.entry, passing)) {
    parts_.halt.halt(state_not_written(context.entry.number, context.entry.state()),
                     context.entry.number);
    return {};
  }
  recall(context);  // the control thread ends it
  context.space = parts_.memory.select(context.entry.pasid);
  context.stopping = true;
  ++stopping_count_;
  context.stop_cause = cause;
  if (parts_.faults.armed() && hangs(context, hard)) {
    enqueue(context);
  } else if (!context.execution.executing) {
    end_stop(context);
  } else if (hard) {
    abort_execution(context);
  } else {
    enqueue(context);
  }
  return {};
}

/// A hard stop after a soft one (SDXI 4.3.5).
void Contexts::make_stop_hard(Context& context) {
  if (context.hang != 0) {
    if (parts_.faults.holds_stop(context.hang, true)) return;
    context.hang = 0;
    enqueue(context);
  }
  abort_execution(context);
}

/// K10 to K12: the context is at a descriptor boundary.
void Contexts::end_stop(Context& context) {
  const auto final_state =
      context.stop_cause == StopCause::kLocal ? cxtv::CXTV_STOP_SW : cxtv::CXTV_STOP_FN;
  const auto entry = context.entry;
  const bool written = context.space.store64(entry.read_index(), context.read_index) &&
                       parts_.tables.write_state(entry, final_state);
  drop(context);
  if (!written) parts_.halt.halt(state_not_written(entry.number, entry.state()), entry.number);
}

/// SDXI 4.3.5: an outstanding descriptor is aborted because of a stop action.
void Contexts::abort_execution(Context& context) {
  if (!context.execution.executing || &context == executing_) return;
  context.execution.executing = false;
  ++context.descriptors;
  context.space = parts_.memory.select(context.entry.pasid);
  complete_with_error(parts_.registers, context.space,
                      util::View<spec::dsc_generic>(context.execution.descriptor));
  stop_for_error(context,
                 {.step = err_step::ERRV_DSC_GEN,
                  .err_class = err_class::GENERIC,
                  .reason = "the descriptor was aborted by a stop action",
                  .section = "SDXI 4.3.5",
                  .value = context.execution.done},
                 context.execution.index);
}

/// StopErr:Cxt, with the record before the state (SDXI 3.4).
void Contexts::stop_for_error(Context& context, const Refusal& refusal,
                              std::optional<std::uint64_t> descriptor) {
  const Alone alone(*this);
  const auto entry = context.entry;
  const auto read_index = context.read_index;
  const bool was_stopping = context.stopping;
  ++errors_;
  drop(context);
  const bool reachable = was_stopping || parts_.tables.write_state(entry, cxtv::CXTV_STOPG_FN);
  const auto space = parts_.memory.select(entry.pasid);
  const bool serialized = reachable && space.store64(entry.read_index(), read_index);
  if (!refusal.logged) {
    parts_.log.record({.refusal = refusal,
                       .reaction = spec::err_reaction::RE_CONTEXT_STOPPED,
                       .context = entry.number,
                       .descriptor = descriptor});
  }
  // K2b: a context whose status cannot be reached cannot be stopped.
  if (!serialized || !parts_.tables.write_state(entry, cxtv::CXTV_ERR_FN)) {
    parts_.halt.halt(state_not_written(entry.number, entry.state()), entry.number);
  }
}

void Contexts::check_stop_deadlines() {
  if (stopping_count_ == 0) return;
  for (auto& context : contexts_) {
    if (context == nullptr || !context->stopping || context->hang != 0) continue;
    // The wait begins with the first run() that sees the stop.
    if (!context->abort_at) context->abort_at = now_ + parts_.options.soft_stop_timeout;
    if (*context->abort_at <= now_) abort_execution(*context);
  }
}

void Contexts::begin_function_stop(bool hard) {
  const Alone alone(*this);
  const bool escalated = function_stop_.has_value() && hard && !function_stop_->hard;
  if (!function_stop_) {
    function_stop_ = FunctionStop{.hard = hard};
    // SDXI 4.1.4: received doorbells end here; nothing new is begun.
    doorbells_.clear();
  }
  function_stop_->hard = function_stop_->hard || hard;
  for (auto& context : contexts_) {
    if (context == nullptr || !context->active) continue;
    if (context->stopping && !escalated && !hard) continue;
    (void)mark_stopping(*context, StopCause::kFunction, hard);
    if (!function_stop_) return;  // the function halted
  }
}

bool Contexts::continue_function_stop(util::Time now) {
  constexpr std::uint32_t kVisits = 512;
  now_ = now;
  if (!function_stop_) return true;
  const Alone alone(*this);
  const auto end = static_cast<std::uint32_t>(contexts_.size());
  for (std::uint32_t i = 0; i < kVisits && function_stop_ && function_stop_->next < end; ++i) {
    const auto number = static_cast<ContextNumber>(function_stop_->next++);
    if (number > parts_.registers.max_cxt()) continue;
    if (find_active(number) != nullptr) continue;
    const auto stopped = stop(number, StopCause::kFunction, function_stop_->hard);
    if (!stopped) parts_.halt.halt(stopped.error(), number);  // K9b
  }
  return !function_stop_ || (function_stop_->next == end && stopping_count_ == 0);
}

}  // namespace softhca::sdxi
