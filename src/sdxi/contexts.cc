#include "sdxi/contexts.h"

#include <algorithm>

#include "sdxi/budget.h"

namespace softhca::sdxi {
namespace {

/// Bytes of the bounce buffer for copies that a peer has to carry out.
constexpr std::size_t kBounceSize = 64 << 10;
/// A waiting DSC_SYNC is notified when its condition may hold. It polls for other events that may
/// free it, such as a VF that leaves.
constexpr util::Duration kSyncPause = std::chrono::milliseconds(10);

/// Refuses a start because of the state of context `number`. The record's step is one that needs no
/// descriptor (SDXI Table 3-10): a VF that logs the error has no descriptor to name.
Refusal cannot_start(ContextNumber number, spec::err_class err_class, std::string_view reason,
                     std::string_view section, std::uint64_t value) {
  auto refusal = invalid(spec::err_step::ERRV_CXT_STS, err_class, reason, section, value);
  refusal.context = number;
  return refusal;
}

Refusal bad_start_state(ContextNumber number, spec::cxtv state) {
  return cannot_start(number, spec::err_class::LOGICAL,
                      "a context can be started from CXTV_STOP_SW, CXTV_STOP_FN and CXTV_RUN only",
                      "SDXI 6.6.3", static_cast<std::uint64_t>(state));
}

}  // namespace

Contexts::Contexts(const Parts& parts)
    : parts_(parts),
      set_(parts.options.capabilities.max_cxt + std::size_t{1}, *this),
      doorbells_(set_.size()),
      completions_(parts.registers, parts.memory),
      scheduler_({.memory = parts.memory, .faults = parts.faults, .workers = parts.workers},
                 set_.size()),
      stops_({.options = parts_.options,
              .memory = parts.memory,
              .tables = parts.tables,
              .completions = completions_,
              .contexts = set_,
              .scheduler = scheduler_,
              .log = parts.log,
              .faults = parts.faults,
              .halt = parts.halt,
              .gate = parts.workers.gate()}),
      function_stop_({.registers = parts.registers, .contexts = set_, .stops = stops_}),
      faults_({.options = parts_.options,
               .completions = completions_,
               .stops = stops_,
               .faults = parts.faults}),
      processor_({.options = parts_.options,
                  .registers = parts.registers,
                  .memory = parts.memory,
                  .tables = parts.tables,
                  .completions = completions_,
                  .keys = parts.keys,
                  .interrupts = parts.interrupts,
                  .self = parts.self,
                  .group = parts.group,
                  .contexts = set_,
                  .control = *this,
                  .stops = stops_,
                  .faults = faults_,
                  .gate = parts.workers.gate()}),
      bounce_(kBounceSize) {
  thread_.bounce = bounce_;
}

void Contexts::note_doorbell(ContextNumber number, std::uint64_t value) {
  // SDXI 3.2: tables above MMIO_CTL2.max_cxt must not be accessed.
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE || number >= set_.size() ||
      number > parts_.registers.max_cxt()) {
    return;
  }
  doorbells_.set_value(number, value);
  if (auto* context = set_.find(number); context != nullptr && context->assigned) {
    return parts_.workers.ring(*context);
  }
  if (auto* trace = parts_.memory.trace()) [[unlikely]] {
    trace->note(util::TraceStep::kDoorbell, {}, {{"context", number}, {"value", value}});
  }
  doorbells_.note(number);
}

void Contexts::ring(ContextNumber first, ContextNumber last, std::uint64_t value) {
  for (std::uint32_t number = first; number <= last && number < set_.size(); ++number) {
    note_doorbell(static_cast<ContextNumber>(number), value);
  }
}

/// Does a part of a run() in which the workers stop at most once: whenever they go on they may
/// begin a turn, for which the next stop would wait. Returns the budget used.
template <class Part>
std::int64_t Contexts::with_one_stop(Part part) {
  const pcie::StoppedOnce once(&parts_.workers.gate());
  const std::int64_t used = part();
  return once.happened() ? used + kGateCost : used;
}

// Each doorbell costs at most a walk through the tables. Turns get half of the budget, however many
// doorbells wait. Returns the budget used.
std::int64_t Contexts::take_doorbells(std::int64_t budget) {
  if (doorbells_.empty()) return 0;
  const pcie::Paused workers_wait(&parts_.workers.gate());
  std::int64_t used = 0;
  while (!doorbells_.empty() && used < budget / 2) {
    evaluate(doorbells_.take());
    used += kContextCost + remote_cost();
  }
  doorbells_notified_ = false;
  return used;
}

// SDXI 4.3.3. Whatever the doorbell's value, a running context compares Read_Index with
// Write_Index: a descriptor whose producer was overtaken (SDXI 5.2.1) may have become valid just
// now.
void Contexts::evaluate(ContextNumber number) {
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE) return;
  // SDXI 3.2: the limit may have been lowered since note_doorbell().
  if (number > parts_.registers.max_cxt()) return;
  if (auto* context = set_.find_active(number)) {
    if (!context->stop.begun) scheduler_.ring(*context);
    return;
  }
  const auto entry = parts_.tables.walk(number);
  if (!entry) {
    // Nothing runs, so nothing needs to be stopped; an invalid context is not logged.
    if (entry.error().log_err) log_unstopped(*entry.error().log_err);
    return;
  }
  const auto state = parts_.tables.state_of(*entry);
  if (!state) return log_unstopped(state.error());
  if (*state == spec::cxtv::CXTV_RUN) activate(*entry);
}

void Contexts::activate(const ContextEntry& entry) {
  auto& context = set_.activate(entry, parts_.memory.select(entry.pasid));
  if (load_read_index(context)) return scheduler_.enqueue(context);
  const auto fault = context.space.explain(entry.read_index());
  stops_.stop_for_error(context,
                        {.step = spec::err_step::ERRV_CXT_STS,
                         .sub_step = fault.sub_step,
                         .err_class = fault.err_class,
                         .reason = "CXT_STS.read_index cannot be read",
                         .section = "SDXI 5.3",
                         .value = entry.read_index()},
                        std::nullopt);
}

Checked<void> Contexts::start(ContextNumber number, StartKind kind) {
  using spec::cxtv;
  const bool normal = kind == StartKind::kNormal;
  // SDXI 4.2: the state of the target function decides, whichever function issued the operation.
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE) {
    if (!normal) return {};
    return refuse(cannot_start(number, spec::err_class::LOGICAL,
                               "the target function is not active", "SDXI 4.2", number));
  }
  // Step 1.
  const auto checked = parts_.tables.check(number);
  if (!checked) {
    if (auto* context = set_.find_active(number);
        context != nullptr && !stops_.is_executing(*context)) {
      stops_.abandon(*context);
    }
    if (checked.error().log_err) return refuse(*checked.error().log_err);
    if (!normal) return {};
    return refuse(cannot_start(number, spec::err_class::ILLEGAL_CXT_INDEX,
                               "the context to start is not valid", "SDXI 6.6.3", number));
  }
  // Steps 2 and 3.
  const auto state = checked->state;
  if (state != cxtv::CXTV_RUN && state != cxtv::CXTV_STOP_SW && state != cxtv::CXTV_STOP_FN) {
    return normal ? Checked<void>(refuse(bad_start_state(number, state))) : Checked<void>();
  }
  if (!normal && state == cxtv::CXTV_STOP_SW) return {};
  // Step 4, with the tables as they are now: the next doorbell is evaluated against them.
  if (auto* context = set_.find_active(number);
      context != nullptr && !stops_.is_executing(*context)) {
    if (state == cxtv::CXTV_RUN && !context->stop.begun) {
      context->entry = checked->entry;
    } else {
      stops_.abandon(*context);
    }
  }
  const auto written = parts_.tables.write_state(checked->entry, cxtv::CXTV_RUN);
  const auto now_is = parts_.tables.read_state(checked->entry);
  if (!written || now_is != cxtv::CXTV_RUN) {
    return refuse(state_not_written(number, checked->entry.state()));
  }
  return {};
}

void Contexts::begin_function_stop(bool hard) {
  doorbells_.clear();  // SDXI 4.1.4: received doorbells end here
  function_stop_.begin(hard);
}

void Contexts::drop_all() {
  doorbells_.clear();
  function_stop_.reset();
  stops_.drop_all();
}

/// Notifies DSC_SYNCs of this function and of its PF, whose condition may hold now.
void Contexts::notify_waiters() {
  if (stops_notified_ == stops_.ended() && doorbells_notified_) return;
  stops_notified_ = stops_.ended();
  doorbells_notified_ = true;
  look_again();
  if (parts_.pf == nullptr) return;
  parts_.pf->context_control().look_again();
  other_function_ = true;
}

void Contexts::look_again() {
  auto* admin = set_.find_active(0);
  if (admin != nullptr && admin->waits_for_others) scheduler_.enqueue(*admin);
}

/// Does one turn's worth of work, or as much of it as `budget` allows: the rest of the turn is kept
/// for the next run(). Each turn that finds only a missing valid bit waits longer than the last.
Turn Contexts::spend(Context& context, ThreadState& thread, std::int64_t budget) {
  if (!context.turn_is_cut) {
    context.deficit = std::min<std::int64_t>(context.deficit, 0) + parts_.options.turn_bytes;
  }
  const auto kept = std::max<std::int64_t>(context.deficit - budget, 0);
  context.deficit -= kept;
  const bool waits = context.waits_for_valid;
  const auto index = context.read_index;
  context.waits_for_valid = context.waits_for_others = false;
  const auto turn = processor_.take_turn(context, thread);
  context.deficit += kept;
  context.turn_is_cut = kept != 0 && turn == Turn::kAgain && context.deficit > 0;
  if (turn == Turn::kWaitValid) {
    const auto& options = parts_.options;
    const bool waited = waits && context.read_index == index;
    context.valid_pause =
        waited ? std::min(context.valid_pause * 2, options.valid_poll_max) : options.valid_poll_min;
    context.waits_for_valid = true;
  }
  return turn;
}

/// Returns the budget used. The workers may own the context afterwards.
std::int64_t Contexts::take_turn(Context& context, std::int64_t budget) {
  const auto before = context.bytes;
  // Workers can continue after the one descriptor that they could not execute.
  thread_.one_descriptor = scheduler_.assignable(context);
  const auto turn = spend(context, thread_, budget);
  const auto used = static_cast<std::int64_t>(context.bytes - before) + remote_cost();
  if (context.active) after_turn(context, turn);
  return used;
}

void Contexts::after_turn(Context& context, Turn turn) {
  const bool executing = context.execution.executing;
  // A ring that became empty returns to the workers as well: a doorbell may have come before this
  // turn.
  if (thread_.one_descriptor && !executing) return scheduler_.enqueue(context);
  switch (turn) {
    case Turn::kIdle:
    case Turn::kHandBack:
      return;
    case Turn::kAgain:
      if (context.turn_is_cut) return scheduler_.go_on(context);
      return executing ? scheduler_.keep(context) : scheduler_.enqueue(context);
    case Turn::kWaitValid:
      return scheduler_.wait_until(context, now_ + context.valid_pause);
    case Turn::kWaitOthers:
      context.waits_for_others = true;
      return scheduler_.wait_until(context, now_ + kSyncPause);
    case Turn::kHeld:
      return scheduler_.wait_until(context, context.held_until);
  }
}

util::Time Contexts::run(util::Time now, util::WorkBudget& work) {
  now_ = now;
  faults_.set_now(now);
  other_function_ = false;
  (void)remote_cost();
  const auto allowed =
      std::min<std::int64_t>(parts_.options.run_bytes, work.left() * kBytesPerUnit);
  auto budget = allowed;
  budget -= take_doorbells(budget);
  scheduler_.look(now);
  budget -= with_one_stop([&] { return stops_.look_at_deadlines(now); });
  while (scheduler_.has_turns() && budget > 0) {
    auto& context = scheduler_.next();
    const auto used =
        with_one_stop([&] { return context.active ? take_turn(context, budget) : 0; });
    budget -= std::max<std::int64_t>(used, parts_.options.descriptor_bytes);
    notify_waiters();
  }
  budget -= with_one_stop([&] { return function_stop_.go_on(); });
  work.charge((allowed - budget) / kBytesPerUnit);
  notify_waiters();
  const bool now_again = processor_.other_function() || other_function_ || !doorbells_.empty() ||
                         function_stop_.has_visits();
  return now_again ? now : scheduler_.next_time(now);
}

Contexts::Statistics Contexts::statistics() const {
  const pcie::Paused workers_wait(&parts_.workers.gate());
  Statistics sum{.errors = stops_.errors(), .looked_at = set_.looked_at()};
  set_.for_each([&sum](const Context& context) {
    sum.descriptors += context.descriptors;
    sum.bytes += context.bytes;
  });
  return sum;
}

void Contexts::log_unstopped(const Refusal& refusal) {
  parts_.log.record({.refusal = refusal,
                     .reaction = spec::err_reaction::RE_INFORMATIVE,
                     .context = refusal.context});
}

}  // namespace softhca::sdxi
