// Fault injection into one HCA: errors of the device as a whole, and the way of the rules to its
// parts, which apply them to commands, queues and interrupts.
#pragma once

#include "hca/faults.h"
#include "pcie/function.h"
#include "util/notes.h"

namespace softhca::hca {

class DeviceFaults {
 public:
  DeviceFaults(const DeviceFaults&) = delete;
  DeviceFaults& operator=(const DeviceFaults&) = delete;

  /// Follows `rules`, which must outlive the device.
  void set_rules(Faults& rules);
  /// Called after each change of the rules, between two turns.
  void follow_rules();
  /// The rules, for the parts of the device.
  const FaultHook& hook() const { return hook_; }

  /// A command met this rule of an internal error or a removal. It is applied after the turn's
  /// commands.
  void break_soon(const Faults::Entry& rule) { breaks_by_ = rule.id; }
  bool breaks() const { return breaks_by_ != 0; }
  /// @pre breaks()
  void apply_break();

 protected:
  /// The device was reset before it broke.
  void forget_break() { breaks_by_ = 0; }
  DeviceFaults(pcie::Function& function, util::Notes& notes) : function_(function), notes_(notes) {}
  ~DeviceFaults() = default;

 private:
  /// The rules have changed: the device's parts look at them.
  virtual void follow_in_parts() = 0;
  /// The device has an internal error. Returns it as text, for the log.
  virtual std::string fail(const FaultRule& rule) = 0;
  /// The device must run again.
  virtual void note_work() = 0;

  void break_by(const Faults::Entry& rule);
  void follow_removal();

  pcie::Function& function_;
  util::Notes& notes_;
  Faults* rules_ = nullptr;  ///< null: no faults can be injected
  FaultHook hook_;
  FaultId last_rule_ = 0;   ///< the last one that was applied when it was added
  FaultId breaks_by_ = 0;   ///< the rule that breaks the device after this command
  FaultId removed_by_ = 0;  ///< the rule for which the function is absent
};

}  // namespace softhca::hca
