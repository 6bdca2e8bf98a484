// Addresses in SDXI structures. A pointer field holds the upper bits of an aligned address at their
// own bit positions, so the field's lowest bit is also log2 of the alignment.
#pragma once

#include <cstdint>

#include "util/field.h"

namespace softhca::spec::sdxi {

/// The address in pointer field `field` of `view`.
template <class View, class Field>
std::uint64_t address(const View& view, Field field) {
  return std::uint64_t{view.get(field)} << Field::kLo;
}

/// Stores `at` in pointer field `field`. @pre `at` has the alignment of the field
template <class View, class Field>
void set_address(const View& view, Field field, std::uint64_t at) {
  assert(at % (std::uint64_t{1} << Field::kLo) == 0);
  view.set(field, at >> Field::kLo);
}

inline constexpr std::uint64_t kDescriptorSize = 64;      ///< bytes
inline constexpr std::uint64_t kContextsPerL1 = 128;      ///< SDXI 3.2
inline constexpr std::uint64_t kErrorRecordType = 0x7f7;  ///< SDXI 3.4.1
/// DSC_CXT_START_*.db_value: use Write_Index (SDXI 4.3.3).
inline constexpr std::uint64_t kDoorbellFromWriteIndex = ~std::uint64_t{0};

/// Bytes of the tables and buffers whose size is given as a power of two (SDXI 3.1).
constexpr std::uint64_t table_bytes(unsigned sz) { return std::uint64_t{1} << (sz + 12); }
constexpr std::uint64_t key_entries(unsigned sz) { return std::uint64_t{1} << (sz + 8); }
constexpr std::uint64_t buffer_bytes(unsigned max_buffer) {
  return std::uint64_t{1} << (max_buffer + 21);
}
constexpr std::uint64_t ring_entries_max(unsigned max_ds_ring_sz) {
  const auto entries = std::uint64_t{1} << (max_ds_ring_sz + 10);
  return entries < 0xffffffff ? entries : 0xffffffff;
}

}  // namespace softhca::spec::sdxi
