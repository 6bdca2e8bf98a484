// Fault injection into one ConnectX: errors of the device as a whole, and the way of the rules to
// its parts.
#pragma once

#include <string>

#include "hca/device_faults.h"

namespace softhca::connectx {

class Device;

class FaultInjection final : public hca::DeviceFaults {
 public:
  /// @pre the notes of the device exist
  explicit FaultInjection(Device& device);

  /// True if no command is executed: after an internal error, or before a rule breaks the device.
  bool stops_commands() const;

 private:
  void follow_in_parts() override;
  std::string fail(const hca::FaultRule& rule) override;
  void note_work() override;

  Device& device_;
};

}  // namespace softhca::connectx
