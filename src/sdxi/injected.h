// The effect of injected faults (faults.h) on one descriptor.
#pragma once

#include <cstdint>

#include "util/clock.h"

namespace softhca::sdxi {

/// Number of a rule in its table, never used twice; 0: none.
using FaultId = unsigned;

/// The rules that act on one descriptor.
struct Injected {
  FaultId hold = 0;  ///< kDelay, kStall
  util::Duration delay{};
  FaultId fail = 0;
  std::uint16_t error_class = 0;
  FaultId bad_completion = 0;
  FaultId lost_completion = 0;
  FaultId lost_interrupt = 0;

  bool any() const {
    return (hold | fail | bad_completion | lost_completion | lost_interrupt) != 0;
  }
};

}  // namespace softhca::sdxi
