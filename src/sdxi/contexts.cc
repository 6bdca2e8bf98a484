#include "sdxi/contexts.h"

#include <algorithm>

namespace softhca::sdxi {
namespace {

/// For copies that a peer has to make for us.
constexpr std::size_t kBounceSize = 64 << 10;

}  // namespace

Contexts::Contexts(const Parts& parts)
    : parts_(parts),
      contexts_(parts.options.max_cxt + std::size_t{1}),
      doorbells_(contexts_.size()),
      bounce_(kBounceSize) {
  hands_.bounce = bounce_;
  waiting_.reserve(contexts_.size());
}

Contexts::~Contexts() = default;

Context* Contexts::find_active(ContextNumber number) const {
  if (number >= contexts_.size()) return nullptr;
  auto* context = find(number);
  return context != nullptr && context->active ? context : nullptr;
}

void Contexts::note_doorbell(ContextNumber number, std::uint64_t value) {
  // SDXI 3.2: nothing above MMIO_CTL2.max_cxt is accessed.
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE || number >= contexts_.size() ||
      number > parts_.registers.max_cxt()) {
    return;
  }
  doorbells_.set_value(number, value);
  if (auto* context = find(number); context != nullptr && context->lent) {
    return parts_.workers.ring(*context);
  }
  doorbells_.note(number);
}

// Each costs a walk through the tables at most. Turns come to their half of the budget, however
// many doorbells there are. Returns what was used.
std::int64_t Contexts::take_doorbells(std::int64_t budget) {
  if (doorbells_.empty()) return 0;
  const Alone alone(*this);
  std::int64_t used = 0;
  for (; !doorbells_.empty() && used < budget / 2; used += parts_.options.descriptor_bytes) {
    evaluate(doorbells_.take());
  }
  return used;
}

void Contexts::ring(ContextNumber first, ContextNumber last, std::uint64_t value) {
  for (std::uint32_t number = first; number <= last && number < contexts_.size(); ++number) {
    note_doorbell(static_cast<ContextNumber>(number), value);
  }
}

// SDXI 4.3.3. In a context that runs, Read_Index is compared with Write_Index, whatever the value:
// the descriptor of a producer that was overtaken (SDXI 5.2.1) may have become valid just now.
void Contexts::evaluate(ContextNumber number) {
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE) return;
  if (auto* context = find_active(number)) {
    if (context->stopping) return;
    if (context->lent) return parts_.workers.ring(*context);
    return enqueue(*context);
  }
  const auto entry = parts_.tables.walk(number);
  if (!entry) {
    // Nothing runs, so nothing needs to be stopped; an invalid context is not worth a word.
    if (entry.error().log_err) {
      log_unstopped(*entry.error().log_err, number);
    }
    return;
  }
  const auto state = parts_.tables.state_of(*entry);
  if (!state) return log_unstopped(state.error(), number);
  if (*state == spec::cxtv::CXTV_RUN) activate(*entry);
}

void Contexts::activate(const ContextEntry& entry) {
  auto& slot = contexts_[entry.number];
  TurnTaker& self = *this;
  if (slot == nullptr) slot = std::make_unique<Context>(self);
  auto& context = *slot;
  context.reset_run();
  context.active = true;
  context.entry = entry;
  context.space = parts_.memory.select(entry.pasid);
  const auto read_index = context.space.load64(entry.read_index());
  if (!read_index) {
    stop_for_error(context,
                   {.step = spec::err_step::ERRV_CXT_STS,
                    .sub_step = context.space.explain(entry.read_index()).sub_step,
                    .err_class = context.space.explain(entry.read_index()).err_class,
                    .reason = "CXT_STS.read_index cannot be read",
                    .section = "SDXI 5.3",
                    .value = entry.read_index()},
                   std::nullopt);
    return;
  }
  context.read_index = *read_index;
  context.read_index_written = *read_index;
  context.write_index = *read_index;
  enqueue(context);
}

/// The context is this thread's from now on.
void Contexts::recall(Context& context) {
  if (!context.lent) return;
  const Alone alone(*this);
  {
    const std::lock_guard lock(handed_back_mutex_);
    handed_back_.remove(context);
  }
  parts_.workers.withdraw(context);
}

void Contexts::drop(Context& context) {
  recall(context);
  if (context.stopping) --stopping_count_;
  context.stopping = false;
  context.active = false;
  context.waiting = false;
  context.execution.executing = false;
  context.execution.injected = {};
  context.hang = 0;
}

void Contexts::drop_all() {
  const Alone alone(*this);
  for (auto& context : contexts_) {
    if (context != nullptr && context->active) drop(*context);
  }
  stopping_count_ = 0;
  doorbells_.clear();
  waiting_.clear();
  function_stop_.reset();
  self_stop_.reset();
}

/// Workers reach what lies in memory of this process, and change nothing but their contexts.
bool Contexts::lendable(const Context& context) const {
  if (parts_.workers.count() == 0 || context.entry.number == 0 || context.stopping) return false;
  if (parts_.faults.armed() || context.hang != 0 || context.execution.injected.any()) return false;
  const auto& entry = context.entry;
  const auto space = parts_.memory.select(entry.pasid);
  return write_index_of(context) != nullptr && space.place(entry.cxt_sts_ptr, 16) != nullptr &&
         space.place(entry.ds_ring_ptr, entry.ds_ring_sz * spec::kDescriptorSize) != nullptr;
}

const std::uint64_t* Contexts::write_index_of(const Context& context) const {
  const auto space = parts_.memory.select(context.entry.pasid);
  return space.readable_word(context.entry.write_index_ptr);
}

void Contexts::enqueue(Context& context) {
  if (context.queued || context.lent) return;
  if (lendable(context)) return parts_.workers.lend(context);
  turns_.push(context);
}

void Contexts::hand_back(Context& context) {
  const std::lock_guard lock(handed_back_mutex_);
  const bool first = handed_back_.empty();
  handed_back_.push(context);
  any_handed_back_ = true;
  if (first) parts_.workers.wake_control();
}

/// What workers could not do gets one turn of this thread.
void Contexts::take_back() {
  if (!any_handed_back_) return;
  const std::lock_guard lock(handed_back_mutex_);
  while (!handed_back_.empty()) {
    auto& context = handed_back_.pop();
    context.lent = false;
    context.attention.store(Attention::kNobody, std::memory_order_relaxed);
    turns_.push(context);
  }
  any_handed_back_ = false;
}

void Contexts::wake_waiting() {
  const bool rules_changed = faults_seen_ != parts_.faults.generation();
  faults_seen_ = parts_.faults.generation();
  std::erase_if(waiting_, [this, rules_changed](ContextNumber number) {
    auto* context = find_active(number);
    if (context == nullptr || context->lent || !context->waiting) return true;
    if (context->poll_at > now_ && !rules_changed) return false;
    enqueue(*context);
    return true;
  });
}

/// One turn's worth of work. Every turn that ends in waiting waits longer than the last.
Turn Contexts::spend(Context& context, Hands& hands) {
  context.deficit = std::min<std::int64_t>(context.deficit, 0) + parts_.options.turn_bytes;
  const bool waited = context.waiting;
  context.waiting = false;
  const auto turn = work(context, hands);
  if (turn == Turn::kWaitValid) {
    const auto& options = parts_.options;
    context.poll_wait =
        waited ? std::min(context.poll_wait * 2, options.valid_poll_max) : options.valid_poll_min;
    context.waiting = true;
  }
  return turn;
}

Turn Contexts::take_worker_turn(Context& context, Hands& hands) { return spend(context, hands); }

/// Returns what was used of the budget. The workers may have the context afterwards.
std::int64_t Contexts::take_turn(Context& context) {
  const auto before = context.bytes;
  // The workers can go on with what comes after the descriptor that they could not execute.
  hands_.one = lendable(context);
  const auto turn = spend(context, hands_);
  const auto used = static_cast<std::int64_t>(context.bytes - before);
  if (!context.active) return used;
  // A ring that became empty goes back as well: a doorbell may have come before this turn.
  if (turn == Turn::kAgain || (hands_.one && !context.execution.executing)) {
    if (!context.execution.executing) {
      enqueue(context);
    } else if (!context.queued) {
      turns_.push(context);
    }
  } else if (turn == Turn::kWaitValid || turn == Turn::kHeld) {
    context.waiting = true;
    context.poll_at = turn == Turn::kHeld ? context.held_until : now_ + context.poll_wait;
    if (std::find(waiting_.begin(), waiting_.end(), context.entry.number) == waiting_.end()) {
      waiting_.push_back(context.entry.number);
    }
  }
  return used;
}

util::Time Contexts::run(util::Time now) {
  now_ = now;
  other_function_ = false;
  take_back();
  std::int64_t budget = parts_.options.run_bytes;
  budget -= take_doorbells(budget);
  wake_waiting();
  check_stop_deadlines();
  while (!turns_.empty() && budget > 0) {
    auto& context = turns_.pop();
    const auto used = context.active ? take_turn(context) : 0;
    budget -= std::max<std::int64_t>(used, parts_.options.descriptor_bytes);
  }
  return next_run();
}

util::Time Contexts::next_run() const {
  if (!turns_.empty() || !doorbells_.empty() || other_function_ || any_handed_back_) return now_;
  auto next = util::kNever;
  for (const auto number : waiting_) {
    const auto* context = find_active(number);
    if (context != nullptr && !context->lent) next = std::min(next, context->poll_at);
  }
  return next;
}

void Contexts::update(ContextNumber first, ContextNumber last) {
  const Alone alone(*this);
  for (std::size_t number = first; number <= last && number < contexts_.size(); ++number) {
    auto* context = find_active(static_cast<ContextNumber>(number));
    if (context == nullptr) continue;
    if (const auto entry = parts_.tables.walk(static_cast<ContextNumber>(number))) {
      context->entry = *entry;
      context->space = parts_.memory.select(entry->pasid);
      context->ring = nullptr;
    } else if (context != executing_) {
      drop(*context);  // SDXI 4.2.6: software made a running context invalid
    }
  }
}

bool Contexts::stopping(ContextNumber first, ContextNumber last,
                        const ContextControl* asker) const {
  if (stopping_count_ == 0) return false;
  for (std::size_t number = first; number <= last && number < contexts_.size(); ++number) {
    const auto* context = find_active(static_cast<ContextNumber>(number));
    // The context that executes the DSC_SYNC cannot wait for its own end.
    if (context != nullptr && context->stopping && !(number == 0 && asker == this)) return true;
  }
  return false;
}

Contexts::Statistics Contexts::statistics() const {
  const Alone alone(*this);
  Statistics sum{.errors = errors_};
  for (const auto& context : contexts_) {
    if (context == nullptr) continue;
    sum.descriptors += context->descriptors;
    sum.bytes += context->bytes;
  }
  return sum;
}

void Contexts::log_for_pf(const Refusal& refusal) {
  log_unstopped(refusal, refusal.context.value_or(0));
}

void Contexts::log_unstopped(const Refusal& refusal, ContextNumber number) {
  parts_.log.record(
      {.refusal = refusal, .reaction = spec::err_reaction::RE_INFORMATIVE, .context = number});
}

}  // namespace softhca::sdxi
