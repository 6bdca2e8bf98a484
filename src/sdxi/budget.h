// What work counts for in a turn or a run(), in bytes: as if so much had been copied meanwhile.
#pragma once

#include <cstdint>

#include "pcie/dma_space.h"
#include "util/work_budget.h"

namespace softhca::sdxi {

/// A context whose tables are walked.
inline constexpr std::int64_t kContextCost = 1024;
/// A context whose doorbell is noted by a DSC_CXT_START.
inline constexpr std::int64_t kSignalCost = 16;
/// An access through a peer.
inline constexpr std::int64_t kRemoteAccessCost = 64 << 10;

/// Of these in a unit of util::WorkBudget.
inline constexpr std::int64_t kBytesPerUnit = 8;

/// What the accesses through peers since the last call count for.
inline std::int64_t remote_cost() {
  if (!pcie::RemoteAccesses::any()) [[likely]]
    return 0;
  return static_cast<std::int64_t>(pcie::RemoteAccesses::take()) * kRemoteAccessCost;
}

}  // namespace softhca::sdxi
