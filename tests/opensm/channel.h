// Protocol between opensm's side of the channel (preload/umad.cc) and the fabric's
// (opensm_test.cc): one packet for each MAD.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca::opensm {

/// Environment variable that holds the channel's descriptor.
inline constexpr const char* kChannelVariable = "SOFTHCA_UMAD";
/// GUIDs of opensm's port.
inline constexpr std::uint64_t kNodeGuid = 0x025FCAFFFE0000F0, kPortGuid = kNodeGuid + 1;

struct Packet {
  std::uint32_t status = 0;      ///< to opensm: error of an unanswered request
  std::uint32_t timeout_ms = 0;  ///< from opensm; 0: no response expected
  std::uint32_t qpn = 0;         ///< of the other end
  std::uint16_t lid = 0;         ///< of the other end
  std::array<std::byte, 256> mad{};
};

}  // namespace softhca::opensm
