// Fault injection into one device: errors of the device as a whole, and the way of the rules to its
// parts, which apply them to commands, queues and interrupts.
#pragma once

#include "hca/faults.h"

namespace softhca::connectx {

class Device;

class FaultInjection {
 public:
  explicit FaultInjection(Device& device) : device_(device) {}

  /// Follows `rules`, which must outlive the device.
  void set_rules(hca::Faults& rules);
  /// Called after each change of the rules, between two turns.
  void follow_rules();
  /// The rules, for the parts of the device.
  const hca::FaultHook& hook() const { return hook_; }

  /// A command met this rule of an internal error or a removal. It is applied after the turn's
  /// commands.
  void break_soon(const hca::Faults::Entry& rule) { breaks_by_ = rule.id; }
  bool breaks() const { return breaks_by_ != 0; }
  /// @pre breaks()
  void apply_break();
  /// True if no command is executed: after an internal error, or before a rule breaks the device.
  bool stops_commands() const;

 private:
  void break_by(const hca::Faults::Entry& rule);
  void follow_removal();

  Device& device_;
  hca::Faults* rules_ = nullptr;  ///< null: no faults can be injected
  hca::FaultHook hook_;
  hca::FaultId last_rule_ = 0;   ///< the last one that was applied when it was added
  hca::FaultId breaks_by_ = 0;   ///< the rule that breaks the device after this command
  hca::FaultId removed_by_ = 0;  ///< the rule for which the function is absent
};

}  // namespace softhca::connectx
