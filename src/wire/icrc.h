// The invariant CRC of RoCEv2 packets (IBTA 7.8.1, Annex A17 17.3.3): a CRC-32 over all that does
// not change on the way from end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "spec/infiniband/constants.h"
#include "wire/frame.h"

namespace softhca::wire {

inline constexpr std::size_t kIcrcSize = spec::infiniband::kIcrcBytes;

/// Where the IP header begins: after the Ethernet header and at most one 802.1Q tag. Nothing if
/// no IP header follows or the head ends before BTH does.
std::optional<std::size_t> find_roce_network_header(std::span<const std::byte> head);

/// The ICRC of the RoCEv2 packet whose IP header begins at `network_offset` and whose ICRC field
/// begins at `end`. The field's bytes on the wire are this number's, least significant first.
/// @pre IP, UDP and BTH are whole and in the frame's head; no IP options
std::uint32_t icrc_of(const Frame& frame, std::size_t network_offset, std::size_t end);

}  // namespace softhca::wire
