// BAR0: the registers of SDXI 9 with their side effects.
#pragma once

#include <cstdint>
#include <span>

#include "sdxi/function_state.h"
#include "sdxi/gate.h"
#include "sdxi/group.h"
#include "sdxi/mailboxes.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

class Mmio {
 public:
  struct Parts {
    Registers& registers;
    FunctionState& state;
    Mailboxes& mailboxes;
    Gate& gate;             ///< closed while registers that workers read change
    const GroupMember* pf;  ///< for a VF; else null
  };

  explicit Mmio(const Parts& parts) : parts_(parts) {}

  /// Accesses of any size and alignment; an access is split at register boundaries.
  void read(std::uint64_t offset, std::span<std::byte> out);
  void write(std::uint64_t offset, std::span<const std::byte> in);
  /// The value of a register up to MMIO_MB_CTL as software reads it; 0 if there is no such
  /// register.
  std::uint64_t value_of(spec::mmio_register name) const;

  /// True if MMIO_GRP_ENUM was written and its probe value must reach the other PFs (SDXI 3.3.1).
  bool probe_is_waiting() const { return probe_is_waiting_; }
  void probe_has_propagated();
  void reset() { probe_is_waiting_ = false; }

 private:
  std::uint64_t read_register(std::uint64_t offset);
  /// `written` has ones in the bytes that software wrote.
  void write_register(std::uint64_t offset, std::uint64_t value, std::uint64_t written);
  void write_ctl0(std::uint64_t value, std::uint64_t written);

  Parts parts_;
  bool probe_is_waiting_ = false;
};

}  // namespace softhca::sdxi
