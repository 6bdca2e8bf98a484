// The identification of an IPv4 header that the receiver of a packet does not see, but whose ICRC
// covers it (IBTA Annex A17 17.3.3). A CRC is linear: each identification changes it in its own
// way, so 16 of its bits reveal the identification, and the other 16 still check the packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softhca::wire {

/// The exclusive or of two ICRCs: with this identification and with 0. `behind`: bytes that the
/// ICRC covers behind the identification.
std::uint32_t icrc_change(std::uint16_t identification, std::size_t behind);

class HiddenIdentification {
 public:
  /// `difference`: the exclusive or of the ICRC received and the one computed with identification
  /// 0. `behind`: bytes that the ICRC covers behind the identification. Nothing: no identification
  /// explains the difference, so the packet is corrupt.
  std::optional<std::uint16_t> find(std::uint32_t difference, std::size_t behind);

 private:
  /// Multiplied by this, the difference is that of the two bytes alone.
  struct Undo {
    std::size_t behind = SIZE_MAX;
    std::uint32_t factor = 0;
  };
  std::array<Undo, 4> known_;  ///< by length: packets of a message have few
};

}  // namespace softhca::wire
