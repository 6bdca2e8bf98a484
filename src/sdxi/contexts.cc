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
      doorbell_values_(contexts_.size()),
      doorbell_noted_(contexts_.size()),
      turns_(contexts_.size()),
      bounce_(kBounceSize) {
  doorbells_.reserve(contexts_.size());
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
  ++doorbells_received_;
  if (!doorbell_noted_[number]) {
    doorbell_noted_[number] = true;
    doorbell_values_[number] = value;
    doorbells_.push_back(number);
  } else {
    doorbell_values_[number] = std::max(doorbell_values_[number], value);
  }
}

void Contexts::take_doorbells() {
  for (std::size_t i = 0; i < doorbells_.size(); ++i) {
    const auto number = doorbells_[i];
    doorbell_noted_[number] = false;
    evaluate(number, doorbell_values_[number]);
    if (doorbells_.empty()) break;  // the function halted
  }
  doorbells_.clear();
  doorbells_evaluated_ = doorbells_received_;
}

void Contexts::ring(ContextNumber number, std::uint64_t value) { evaluate(number, value); }

// SDXI 4.3.3. The value tells that there may be work; how much, Write_Index tells.
void Contexts::evaluate(ContextNumber number, std::uint64_t value) {
  if (parts_.registers.gsv() != spec::fn_gsv::GSV_ACTIVE || number >= contexts_.size()) return;
  if (auto* context = find_active(number)) {
    if (context->stopping) return;
    const bool news = !context->doorbell_seen || value > context->doorbell;
    if (news) {
      context->doorbell = value;
      context->doorbell_seen = true;
    }
    // SDXI 5.2.1: values of several producers may fall, and such a doorbell is discarded; but a
    // producer that was overtaken has just made a descriptor valid that we wait for.
    if (news || context->waiting) enqueue(*context);
    return;
  }
  const auto entry = parts_.tables.walk(number);
  if (!entry) {
    // Nothing runs, so nothing needs to be stopped; an invalid context is not worth a word.
    if (entry.error().log_err) {
      parts_.log.record({.refusal = *entry.error().log_err, .context = number});
    }
    return;
  }
  const auto state = parts_.tables.state_of(*entry);
  if (!state) {
    parts_.log.record({.refusal = state.error(), .context = number});
    return;
  }
  if (*state == spec::cxtv::CXTV_RUN) activate(*entry, value);
}

void Contexts::activate(const ContextEntry& entry, std::uint64_t value) {
  auto& slot = contexts_[entry.number];
  if (slot == nullptr) slot = std::make_unique<Context>();
  auto& context = *slot;
  const bool queued = context.queued;
  context = Context{};
  context.queued = queued;
  context.active = true;
  context.entry = entry;
  context.space = parts_.memory.select(entry.pasid);
  context.doorbell = value;
  context.doorbell_seen = true;
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
  context.write_index = *read_index;
  enqueue(context);
}

void Contexts::drop(Context& context) {
  if (context.stopping) --stopping_count_;
  context.stopping = false;
  context.active = false;
  context.waiting = false;
  context.execution.executing = false;
  context.execution.injected = {};
  context.hang = 0;
}

void Contexts::drop_all() {
  for (auto& context : contexts_) {
    if (context != nullptr && context->active) drop(*context);
  }
  stopping_count_ = 0;
  for (const auto number : doorbells_) doorbell_noted_[number] = false;
  doorbells_.clear();
  doorbells_evaluated_ = doorbells_received_;
  waiting_.clear();
  function_stop_.reset();
  self_stop_.reset();
}

void Contexts::enqueue(Context& context) {
  if (context.queued) return;
  context.queued = true;
  turns_.push(context.entry.number);
}

void Contexts::wake_waiting() {
  const bool rules_changed = faults_seen_ != parts_.faults.generation();
  faults_seen_ = parts_.faults.generation();
  std::erase_if(waiting_, [this, rules_changed](ContextNumber number) {
    auto* context = find_active(number);
    if (context == nullptr || !context->waiting) return true;
    if (context->poll_at > now_ && !rules_changed) return false;
    enqueue(*context);
    return true;
  });
}

void Contexts::take_turn(Context& context) {
  context.deficit = std::min<std::int64_t>(context.deficit, 0) + parts_.options.turn_bytes;
  const bool waited = context.waiting;
  context.waiting = false;
  const auto turn = work(context);
  if (!context.active) return;
  if (turn == Turn::kAgain) {
    enqueue(context);
  } else if (turn == Turn::kWaitValid || turn == Turn::kHeld) {
    const auto& options = parts_.options;
    context.poll_wait = waited && turn == Turn::kWaitValid
                            ? std::min(context.poll_wait * 2, options.valid_poll_max)
                            : options.valid_poll_min;
    context.poll_at = turn == Turn::kHeld ? context.held_until : now_ + context.poll_wait;
    context.waiting = true;
    if (std::find(waiting_.begin(), waiting_.end(), context.entry.number) == waiting_.end()) {
      waiting_.push_back(context.entry.number);
    }
  }
}

util::Time Contexts::run(util::Time now) {
  now_ = now;
  other_function_ = false;
  take_doorbells();
  wake_waiting();
  check_stop_deadlines();
  std::int64_t budget = parts_.options.run_bytes;
  while (!turns_.empty() && budget > 0) {
    const auto number = turns_.pop();
    auto& context = *find(number);
    context.queued = false;
    if (!context.active) continue;
    const auto before = statistics_.bytes;
    take_turn(context);
    budget -= std::max<std::int64_t>(static_cast<std::int64_t>(statistics_.bytes - before),
                                     parts_.options.descriptor_bytes);
  }
  return next_run();
}

util::Time Contexts::next_run() const {
  if (!turns_.empty() || !doorbells_.empty() || other_function_) return now_;
  auto next = util::kNever;
  for (const auto number : waiting_) {
    if (const auto* context = find_active(number)) next = std::min(next, context->poll_at);
  }
  return next;
}

void Contexts::update(ContextNumber first, ContextNumber last) {
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

void Contexts::log_for_pf(const Refusal& refusal) {
  parts_.log.record({.refusal = refusal, .context = refusal.context.value_or(0)});
}

}  // namespace softhca::sdxi
