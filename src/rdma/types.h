// The nouns of the InfiniBand transport, device-independent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "util/strong.h"

namespace softhca::rdma {

using Qpn = util::Strong<struct QpnTag, std::uint32_t>;  ///< 24 bits
/// A memory key as it stands in a work request or a RETH: index and variant byte. LKeys and RKeys are the same number here.
using MKey = util::Strong<struct MKeyTag, std::uint32_t>;
using Pd = util::Strong<struct PdTag, std::uint32_t>;

using Gid = std::array<std::byte, 16>;  ///< IPv4 in its v4-mapped form
using Mac = std::array<std::byte, 6>;

enum class QpType : std::uint8_t { kRc, kUc, kUd, kXrc };
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqError, kSqDrain, kError };

/// How a work request ended; a device maps it to its own completion codes (IBTA 11.6.2).
enum class WorkStatus : std::uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQpOperation,
  kLocalProtection,
  kFlushed,
  kMemoryWindowBind,
  kBadResponse,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kTransportRetryExceeded,
  kRnrRetryExceeded,
};

}  // namespace softhca::rdma
