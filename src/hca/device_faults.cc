#include "hca/device_faults.h"

#include <algorithm>
#include <utility>

namespace softhca::hca {

void DeviceFaults::set_rules(Faults& rules) {
  rules_ = &rules;
  hook_.function = function_.name();
  follow_rules();
}

void DeviceFaults::follow_rules() {
  if (rules_ == nullptr) return;
  hook_.rules = rules_->empty() ? nullptr : rules_;
  if (removed_by_ != 0 && !hook_.holds(removed_by_)) follow_removal();
  while (const auto* rule = rules_->take_immediate(function_.name(), last_rule_)) {
    last_rule_ = rule->id;
    break_by(*rule);
  }
  follow_in_parts();
  note_work();
}

/// The rule that removed the function has gone. It comes back, unless another one was added
/// meanwhile.
void DeviceFaults::follow_removal() {
  const auto keeps_removed = [this](const Faults::Entry& entry) {
    const auto& rule = entry.rule;
    return rule.action == FaultAction::kRemove && rule.immediate() && entry.id <= last_rule_ &&
           (rule.function.empty() || rule.function == function_.name());
  };
  const auto other = std::ranges::find_if(rules_->rules(), keeps_removed);
  if (other != rules_->rules().end()) {
    removed_by_ = other->id;
    return;
  }
  removed_by_ = 0;
  function_.config().set_present(true);
  function_.reset();
}

void DeviceFaults::apply_break() {
  const auto* rule = rules_->find(std::exchange(breaks_by_, 0));
  if (rule != nullptr) break_by(*rule);
}

void DeviceFaults::break_by(const Faults::Entry& rule) {
  note_work();
  if (rule.rule.action == FaultAction::kRemove) {
    if (removed_by_ != 0) return;
    notes_.warn("removed by fault rule {}", rule.id);
    removed_by_ = rule.id;
    function_.config().set_present(false);
    return function_.reset();
  }
  notes_.warn("{} by fault rule {}", fail(rule.rule), rule.id);
}

}  // namespace softhca::hca
