// What a model of card has beside what all of them share, as hardware and firmware of its own: it
// is told what the device does, and has a part in the inspect tree. It changes nothing.
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

  /// Power-on state: what it was told is gone.
  virtual void handle_reset() = 0;
  /// A command has done what it is for. The messages are valid during the call only; an input's end
  /// may be missing, if it is long.
  virtual void handle_command(spec::connectx::command_opcode opcode, std::span<const std::byte> in,
                              std::span<const std::byte> out) = 0;
  /// Names of its own for the steps of a trace; null: it has none.
  virtual util::TraceModules* trace_modules() { return nullptr; }
  /// As pcie::Function::inspect_device(). `general`: the capabilities that are in force.
  virtual void inspect(util::View<spec::connectx::hca_cap> general,
                       util::Inspection& out) const = 0;

 protected:
  Companion() = default;
  Companion(const Companion&) = default;
  Companion& operator=(const Companion&) = default;
};

}  // namespace softhca::connectx
