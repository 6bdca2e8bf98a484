// Data segments of WQEs.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// Bytes of a data segment. PRM 7.4.4.1.4: "A byte count value of zero means 2Gbyte data transfer."
constexpr std::uint32_t segment_length(std::uint32_t byte_count) {
  constexpr std::uint32_t kZeroMeans = 1u << 31;  // no format: bytes
  return byte_count == 0 ? kZeroMeans : byte_count;
}

}  // namespace softhca::connectx
