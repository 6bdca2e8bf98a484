#include "sdxi/faults.h"

#include <algorithm>
#include <utility>

#include "util/log.h"

namespace softhca::sdxi {
namespace {

bool meets_function(const FaultRule& rule, std::string_view function) {
  return rule.function.empty() || rule.function == function;
}

bool meets_context(const FaultRule& rule, ContextNumber context) {
  return !rule.context || *rule.context == context;
}

/// True if the action can affect the descriptor.
bool concerns(const FaultRule& rule, const Faults::Accepted& descriptor) {
  if (rule.operation != nullptr && rule.operation != &descriptor.operation) return false;
  switch (rule.action) {
    case FaultAction::kDelay:
    case FaultAction::kStall:
    case FaultAction::kFail:
      return true;
    case FaultAction::kBadCompletion:
    case FaultAction::kLoseCompletion:
      return descriptor.has_completion;
    case FaultAction::kLoseInterrupt:
      return raises_interrupt(descriptor.operation);
    case FaultAction::kHangSoftStop:
    case FaultAction::kHangStop:
      return false;
  }
  return false;
}

/// Counts an event that the rule matched; true if the rule fires.
bool take(Faults::Entry& entry) { return entry.rule.include(++entry.matched); }

void note(const Faults::Entry& entry) {
  util::log(util::LogLevel::kDebug, "fault {} fired ({} times): {}", entry.id, entry.fired,
            to_text(entry.rule));
}

void inject(Injected& injected, const Faults::Entry& entry) {
  switch (entry.rule.action) {
    case FaultAction::kDelay:
      if (injected.hold != 0 && injected.delay > entry.rule.delay) break;
      injected.hold = entry.id;
      injected.delay = entry.rule.delay;
      break;
    case FaultAction::kStall:
      injected.hold = entry.id;
      injected.delay = util::Duration::max();
      break;
    case FaultAction::kFail:
      injected.fail = entry.id;
      injected.error_class = entry.rule.error_class;
      break;
    case FaultAction::kBadCompletion:
      injected.bad_completion = entry.id;
      break;
    case FaultAction::kLoseCompletion:
      injected.lost_completion = entry.id;
      break;
    case FaultAction::kLoseInterrupt:
      injected.lost_interrupt = entry.id;
      break;
    case FaultAction::kHangSoftStop:
    case FaultAction::kHangStop:
      break;
  }
}

}  // namespace

FaultId Faults::add(FaultRule rule) {
  const auto id = RuleList::add(std::move(rule));
  changed();
  return id;
}

bool Faults::remove(FaultId id) {
  const bool removed = RuleList::remove(id);
  changed();
  return removed;
}

void Faults::clear() {
  RuleList::clear();
  changed();
}

void Faults::changed() {
  ++generation_;
  armed_.store(!empty(), std::memory_order_relaxed);
}

Injected Faults::accept(const Accepted& descriptor) {
  Injected injected;
  for (auto& entry : entries()) {
    if (!meets_function(entry.rule, descriptor.function) ||
        !meets_context(entry.rule, descriptor.context) || !concerns(entry.rule, descriptor) ||
        !take(entry)) {
      continue;
    }
    inject(injected, entry);
  }
  return injected;
}

void Faults::fired(FaultId id) {
  const auto found = std::ranges::find(entries(), id, &Entry::id);
  if (found == entries().end()) return;  // removed since it was chosen
  ++found->fired;
  note(*found);
}

FaultId Faults::begin_stop(std::string_view function, ContextNumber context, bool hard) {
  for (auto& entry : entries()) {
    const bool concerns = entry.rule.action == FaultAction::kHangStop ||
                          (entry.rule.action == FaultAction::kHangSoftStop && !hard);
    if (!concerns || !meets_function(entry.rule, function) || !meets_context(entry.rule, context) ||
        !take(entry)) {
      continue;
    }
    ++entry.fired;
    note(entry);
    return entry.id;
  }
  return 0;
}

bool Faults::holds_stop(FaultId id, bool hard) const {
  const auto* entry = find(id);
  return entry != nullptr && (entry->rule.action == FaultAction::kHangStop || !hard);
}

bool Faults::lose_message(std::string_view function) {
  bool lost = false;
  for (auto& entry : entries()) {
    const auto& rule = entry.rule;
    if (rule.action != FaultAction::kLoseInterrupt || rule.context || rule.operation != nullptr ||
        !meets_function(rule, function) || !take(entry)) {
      continue;
    }
    lost = true;
    ++entry.fired;
    note(entry);
  }
  return lost;
}

}  // namespace softhca::sdxi
