// Layouts as tests see them: each structure with its fields, and the bytes that a field sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "util/field.h"

namespace softhca::spec::test {

struct Structure {
  std::string_view name;
  std::string_view section;
  std::size_t size;
  std::span<const util::FieldInfo> fields;
};

template <class... S>
void append(std::vector<Structure>& out, const std::tuple<S...>*) {
  out.insert(out.end(), {Structure{S::kName, S::kSection, S::kSize, S::kFields}...});
}

/// All structures of these layout files. Each of `Lists` is the tuple of a file's structures.
template <class... Lists>
std::vector<Structure> structures_of() {
  std::vector<Structure> out;
  (append(out, static_cast<const Lists*>(nullptr)), ...);
  return out;
}

/// The nonzero bytes of the structure after `field` is set to `value`, e.g. "1c=80".
template <class Layout, class Field>
std::string bytes_of(Field field, std::uint64_t value = ~0ull) {
  util::Struct<Layout> made;
  made.set(field, static_cast<typename Field::Word>(value & Field::kMax));
  std::string found;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (std::size_t i = 0; i != Layout::kSize; ++i) {
    const auto byte = std::to_integer<unsigned>(made.bytes()[i]);
    if (byte == 0) continue;
    if (!found.empty()) found += ' ';
    for (const auto digit : {i / 16, i % 16}) found += kDigits[digit];
    found += '=';
    for (const auto digit : {byte / 16, byte % 16}) found += kDigits[digit];
  }
  return found;
}

}  // namespace softhca::spec::test
