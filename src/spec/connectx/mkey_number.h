// The parts of a memory key (PRM 6.1): the index of its context, followed by 8 bits that the driver
// chooses, its variant.
#pragma once

#include <cstdint>

namespace softhca::spec::connectx {

inline constexpr unsigned kMkeyVariantBits = 8;

/// @pre `variant` has at most kMkeyVariantBits bits
constexpr std::uint32_t mkey_of(std::uint32_t index, std::uint32_t variant) {
  return index << kMkeyVariantBits | variant;
}
constexpr std::uint32_t mkey_index_of(std::uint32_t mkey) { return mkey >> kMkeyVariantBits; }

}  // namespace softhca::spec::connectx
