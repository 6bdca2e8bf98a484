// The variant CRC of packets on InfiniBand links (IBTA 7.8.2): a CRC-16 over the whole packet,
// recomputed on each link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/infiniband/constants.h"
#include "wire/frame.h"

namespace softhca::wire {

inline constexpr std::size_t kVcrcSize = spec::infiniband::kVcrcBytes;

/// The VCRC of a packet, LRH to ICRC; or of its rest, if `before` is the VCRC of the bytes before.
/// The field on the wire is this number, least significant byte first.
std::uint16_t vcrc_of(std::span<const std::byte> packet, std::uint16_t before = 0);
/// The same for the packet in `frame`, whose VCRC field begins at `end`.
std::uint16_t vcrc_of(const Frame& frame, std::size_t end);

}  // namespace softhca::wire
