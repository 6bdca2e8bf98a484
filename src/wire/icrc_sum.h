// The ICRC of a packet that is no frame, in parts: see icrc.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/icrc.h"

namespace softhca::wire {

/// Bytes from the start of `header` to the end of the BTH.
std::size_t masked_size(NetworkHeader header);
/// Begins the sum with the 8 bytes before a global packet and the headers from `header` to the end
/// of the BTH, whose variant fields are masked.
/// @pre `header` is not kLrh; headers.size() == masked_size(header)
std::uint32_t begin_icrc(std::span<const std::byte> headers, NetworkHeader header);
std::uint32_t add_to_icrc(std::uint32_t icrc, std::span<const std::byte> bytes);

}  // namespace softhca::wire
