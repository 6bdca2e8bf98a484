// Sizes, units and numbers that the queues of this folder share.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "driver/connectx/send_ring.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::driver::connectx {

/// Unit, in bytes, in which WQEs and their segments are counted.
inline constexpr std::size_t kUnit = 16;
inline constexpr std::size_t kEntriesMax = std::size_t{1} << 15;
inline constexpr std::uint32_t kAnyQp = 0xffffff;
inline constexpr std::uint32_t kPort = 1;
/// Requests an acknowledgement at least every 2^8 packets, as mlx5 does.
inline constexpr std::uint32_t kLogAckRequestFrequency = 8;

inline unsigned log2_of(std::size_t power) {
  return static_cast<unsigned>(std::countr_zero(power));
}

inline std::size_t inline_segment_size(std::size_t bytes) {
  return (spec::data_segment_inline::data_offset + bytes + kUnit - 1) / kUnit * kUnit;
}

/// Blocks of a send queue that hold `size` bytes.
inline std::uint32_t blocks_of(std::size_t size) {
  return static_cast<std::uint32_t>((size + SendRing::kBlock - 1) / SendRing::kBlock);
}

}  // namespace softhca::driver::connectx
