// The hardware and firmware that one model of card has beyond the common device. The device
// notifies a companion of resets and commands. A companion adds a part to the inspect tree, and
// changes nothing in the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/connectx/caps.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"
#include "util/inspection.h"
#include "util/trace.h"

namespace softhca::connectx {

class Companion {
 public:
  virtual ~Companion() = default;

  /// Restores the power-on state: drops all records.
  virtual void handle_reset() = 0;
  /// Called after a command has succeeded. The messages are valid only during the call, and the end
  /// of a long input may be missing.
  virtual void handle_command(spec::connectx::command_opcode opcode, std::span<const std::byte> in,
                              std::span<const std::byte> out) = 0;
  /// The companion's names for the steps of a trace. Null: it has none.
  virtual util::TraceModules* trace_modules() { return nullptr; }
  /// See pcie::Function::inspect_device(). `general`: the capabilities in force.
  virtual void inspect(util::View<spec::connectx::hca_cap> general,
                       util::Inspection& out) const = 0;

 protected:
  Companion() = default;
  Companion(const Companion&) = default;
  Companion& operator=(const Companion&) = default;
};

}  // namespace softhca::connectx
