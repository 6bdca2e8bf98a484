// The variant CRC of packets on InfiniBand links (IBTA 7.8.2): a CRC-16 over all of the packet,
// made anew on each link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/infiniband/constants.h"
#include "wire/frame.h"

namespace softhca::wire {

inline constexpr std::size_t kVcrcSize = spec::infiniband::kVcrcBytes;

/// Over all of a packet, LRH to ICRC; or over its rest, if `before` is that of what comes before.
/// The field's bytes on the wire are this number's, least significant first.
std::uint16_t vcrc_of(std::span<const std::byte> packet, std::uint16_t before = 0);
/// The same for the packet in `frame`, whose VCRC field begins at `end`.
std::uint16_t vcrc_of(const Frame& frame, std::size_t end);

}  // namespace softhca::wire
