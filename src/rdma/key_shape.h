// The position of the index in a memory key.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "rdma/types.h"

namespace softhca::rdma {

/// The bits of a key that are its index in the table. The others are its variant, which
/// distinguishes it from earlier keys with the same index (IBTA 10.6.3). Every HCA has its own
/// shape.
class KeyShape {
 public:
  /// The index occupies `index_bits` bits from bit `index_low`; it is at the low or the high end of
  /// the key.
  constexpr KeyShape(unsigned index_low, unsigned index_bits)
      : low_(index_low), mask_(static_cast<std::uint32_t>((std::uint64_t{1} << index_bits) - 1)) {
    assert(index_low == 0 || index_low + index_bits == 32);
  }

  constexpr std::uint32_t index(MKey key) const { return key.value() >> low_ & mask_; }
  constexpr std::uint32_t variant(MKey key) const {
    const auto rest = key.value() & ~(mask_ << low_);
    return low_ == 0 ? rest >> variant_low() : rest;
  }
  /// @pre both fit into their bits
  constexpr MKey key(std::uint32_t index, std::uint32_t variant) const {
    const MKey key(index << low_ | (low_ == 0 ? variant << variant_low() : variant));
    assert(this->index(key) == index && this->variant(key) == variant);
    return key;
  }

 private:
  constexpr unsigned variant_low() const {
    return static_cast<unsigned>(std::bit_width(mask_)) % 32;
  }

  unsigned low_;
  std::uint32_t mask_;
};

}  // namespace softhca::rdma
