// The cost of work in a turn or a run(), in bytes, as if that many bytes had been copied instead.
#pragma once

#include <cstdint>

#include "pcie/dma_space.h"
#include "util/work_budget.h"

namespace softhca::sdxi {

/// Walking a context's tables.
inline constexpr std::int64_t kContextCost = 1024;
/// Checking whether a stopping context is one that a DSC_SYNC waits for.
inline constexpr std::int64_t kStopCheckCost = 16;
/// Noting the doorbell of a context that a DSC_CXT_START started.
inline constexpr std::int64_t kSignalCost = 16;
/// Raising an interrupt: a write to an eventfd, which may wake a thread.
inline constexpr std::int64_t kInterruptCost = 16 << 10;
/// Stopping the workers, which end their turns first.
inline constexpr std::int64_t kGateCost = 200 << 10;
/// One access to memory behind a peer.
inline constexpr std::int64_t kRemoteAccessCost = 64 << 10;

/// Bytes of cost in one unit of util::WorkBudget.
inline constexpr std::int64_t kBytesPerUnit = 8;

/// The cost, in bytes, of the accesses through peers since the last call.
inline std::int64_t remote_cost() {
  if (!pcie::RemoteAccesses::any()) [[likely]]
    return 0;
  return static_cast<std::int64_t>(pcie::RemoteAccesses::take()) * kRemoteAccessCost;
}

}  // namespace softhca::sdxi
