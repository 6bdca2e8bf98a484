// Field-by-field access to structures as their layouts declare them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>

#include "util/field.h"

namespace softhca::jingzhao::test {

/// Calls `visit(byte, bit)` for each bit of a field, with its position in the structure's bytes.
template <class Visit>
void for_each_bit(const util::FieldInfo& field, util::ByteOrder order, Visit&& visit) {
  const unsigned width = field.hi > 31 ? 8 : 4;
  for (unsigned bit = field.lo; bit <= field.hi; ++bit) {
    const auto byte = order == util::ByteOrder::kBig ? width - 1 - bit / 8 : bit / 8;
    visit(field.offset + byte, bit % 8);
  }
}

using Fields = std::map<std::string_view, std::uint64_t>;

/// The nonzero fields.
template <class Layout>
Fields fields_of(std::span<const std::byte> bytes, util::ByteOrder order) {
  Fields found;
  for (const auto& field : Layout::kFields) {
    std::uint64_t value = 0;
    unsigned number = 0;  // lowest bit first
    for_each_bit(field, order, [&](std::size_t at, unsigned bit) {
      const auto set = static_cast<std::uint64_t>(bytes[at] >> bit & std::byte{1});
      value |= set << number++;
    });
    if (value != 0) found[field.name] = value;
  }
  return found;
}

}  // namespace softhca::jingzhao::test
