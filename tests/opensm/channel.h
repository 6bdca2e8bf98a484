// What opensm's side of the channel (preload/umad.cc) and the fabric's (opensm_test.cc) say to each
// other: one packet for each MAD.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca::opensm {

/// Names the descriptor of the channel to the program.
inline constexpr const char* kChannelVariable = "SOFTHCA_UMAD";
/// Of the port that opensm runs on.
inline constexpr std::uint64_t kNodeGuid = 0x025FCAFFFE0000F0, kPortGuid = kNodeGuid + 1;

struct Packet {
  std::uint32_t status = 0;      ///< to opensm: of a request that nobody has answered
  std::uint32_t timeout_ms = 0;  ///< from opensm; 0: no answer is waited for
  std::uint32_t qpn = 0;         ///< of the other end
  std::uint16_t lid = 0;         ///< likewise
  std::array<std::byte, 256> mad{};
};

}  // namespace softhca::opensm
