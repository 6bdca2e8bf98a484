#include "connectx/fault_injection.h"

#include <algorithm>
#include <utility>

#include "connectx/command/command_interface.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

void FaultInjection::set_rules(hca::Faults& rules) {
  rules_ = &rules;
  hook_.function = device_.name();
  follow_rules();
}

void FaultInjection::follow_rules() {
  if (rules_ == nullptr) return;
  hook_.rules = rules_->empty() ? nullptr : rules_;
  if (removed_by_ != 0 && !hook_.holds(removed_by_)) follow_removal();
  while (const auto* rule = rules_->take_immediate(device_.name(), last_rule_)) {
    last_rule_ = rule->id;
    break_by(*rule);
  }
  device_.commands().follow_fault_rules();
  auto& driver = device_.driver();
  driver.completion_queues().follow_fault_rules();
  driver.rdma().follow_fault_rules();
  driver.ethernet().follow_fault_rules();
  device_.note_work();
}

/// The rule that removed the function has gone. It comes back, unless another one was added
/// meanwhile.
void FaultInjection::follow_removal() {
  const auto keeps_removed = [this](const hca::Faults::Entry& entry) {
    const auto& rule = entry.rule;
    return rule.action == hca::FaultAction::kRemove && rule.immediate() && entry.id <= last_rule_ &&
           (rule.function.empty() || rule.function == device_.name());
  };
  const auto other = std::ranges::find_if(rules_->rules(), keeps_removed);
  if (other != rules_->rules().end()) {
    removed_by_ = other->id;
    return;
  }
  removed_by_ = 0;
  device_.config().set_present(true);
  device_.reset();
}

void FaultInjection::apply_break() {
  const auto* rule = rules_->find(std::exchange(breaks_by_, 0));
  if (rule != nullptr) break_by(*rule);
}

bool FaultInjection::stops_commands() const {
  return breaks() || device_.health().stopped_at().has_value();
}

void FaultInjection::break_by(const hca::Faults::Entry& rule) {
  device_.note_work();
  if (rule.rule.action == hca::FaultAction::kRemove) {
    if (removed_by_ != 0) return;
    device_.notes().warn("removed by fault rule {}", rule.id);
    removed_by_ = rule.id;
    device_.config().set_present(false);
    return device_.reset();
  }
  const auto syndrome = rule.rule.syndrome ? static_cast<Health::Syndrome>(*rule.rule.syndrome)
                                           : Health::Syndrome::FW_INTERNAL_ERR;
  device_.notes().warn("internal error {:#x} by fault rule {}", static_cast<unsigned>(syndrome),
                       rule.id);
  device_.health().report_fatal(syndrome, device_.now());
  device_.driver().drop_objects();
}

}  // namespace softhca::connectx
