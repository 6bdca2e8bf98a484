// Fault injection into one JingZhao: its commands, and errors of the device as a whole.
#pragma once

#include <optional>
#include <string>

#include "hca/device_faults.h"
#include "jingzhao/command.h"

namespace softhca::jingzhao {

class FaultInjection final : public hca::DeviceFaults {
 public:
  /// @pre the notes of the device exist
  explicit FaultInjection(Device& device);

  /// Applies the rules, once, to the command of the HCR. False if it is not executed now.
  bool lets_run(Opcode op);
  /// The status with which a rule ends the command, in place of its execution.
  std::optional<Status> injected() const { return injected_; }
  /// The command has ended.
  void end_command();
  /// The device is reset, which ends an internal error.
  void reset();

 private:
  void follow_in_parts() override;
  std::string fail(const hca::FaultRule& rule) override;
  void note_work() override {}  // each turn runs the device
  bool inject(Opcode op);

  Device& device_;
  bool failed_ = false;    ///< after an internal error
  bool met_ = false;       ///< the rules have seen the command
  hca::FaultId held_ = 0;  ///< the rule that holds back the command
  std::optional<Status> injected_;
};

}  // namespace softhca::jingzhao
