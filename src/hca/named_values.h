// The named values of an enumeration of a document, for fault rules.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "hca/fault_rule.h"

namespace softhca::hca {

/// All values for which to_string() has a name.
template <class Enum>
std::vector<FaultName> named_values() {
  using Number = std::underlying_type_t<Enum>;
  static_assert(sizeof(Number) <= 2);
  std::vector<FaultName> names;
  for (std::uint32_t value = 0; value <= std::numeric_limits<Number>::max(); ++value) {
    const auto name = to_string(static_cast<Enum>(value));
    if (!name.empty()) names.push_back({.name = name, .value = value});
  }
  return names;
}

}  // namespace softhca::hca
