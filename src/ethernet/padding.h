// The minimum frame size of Ethernet (IEEE 802.3 4.2.3.3, PRM 3.3.8).
#pragma once

#include <cstddef>

#include "wire/frame.h"

namespace softhca::ethernet {

/// 64 bytes including the FCS, which frames here do not have.
inline constexpr std::size_t kFrameSizeMin = 60;

/// Appends zeros to a shorter frame. @pre the frame has no tail
void pad_to_minimum(wire::Frame& frame);

}  // namespace softhca::ethernet
