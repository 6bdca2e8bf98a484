// Adds the document's structures to an inspect tree, each field by its name.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "pcie/dma_space.h"
#include "util/endian.h"
#include "util/field.h"
#include "util/inspect.h"

namespace softhca::sdxi {

/// For memory that only messages reach: the server thread must not wait for a client's answer.
inline constexpr std::string_view kNotMapped = "not mapped: the client gives it by messages only";

/// Reports why a structure could not be read.
inline void inspect_unreadable(std::string_view name, util::InspectNode& out) {
  out.add(name, pcie::LocalMemoryOnly::take_refusal() ? kNotMapped : "unreadable");
}

/// A field in readable form: addresses whole and in hex, values of more than 16 bits in hex.
inline void inspect_field(const util::FieldInfo& field, std::span<const std::byte> structure,
                          util::InspectNode& out) {
  std::array<std::byte, 8> bytes{};
  const auto from = structure.subspan(field.offset);
  std::copy_n(from.begin(), std::min(from.size(), bytes.size()), bytes.begin());
  const auto word = util::load_le64(bytes.data());
  const unsigned width = field.hi - field.lo + 1u;
  const auto value = word >> field.lo & (~std::uint64_t{0} >> (64 - width));
  if (field.name.ends_with("ptr")) {
    out.add_hex(field.name, value << field.lo);
  } else if (width > 16 && !field.name.ends_with("index")) {
    out.add_hex(field.name, value);
  } else {
    out.add(field.name, value);
  }
}

/// All fields of a structure.
template <class Layout>
void inspect_fields(util::View<Layout> structure, util::InspectNode& out) {
  for (const auto& field : Layout::kFields) inspect_field(field, structure.bytes(), out);
}

/// The document's name of a value, or its number.
template <class Enum>
void inspect_enum(std::string_view name, Enum value, util::InspectNode& out) {
  const auto text = to_string(value);
  if (text.empty()) {
    out.add_hex(name, static_cast<std::uint64_t>(value));
  } else {
    out.add(name, text);
  }
}

}  // namespace softhca::sdxi
