// The two families of fault rules: those of SDXI functions (sdxi/fault_rule.h) and those of HCAs
// (hca/fault_rule.h).
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "util/result.h"

namespace softhca::server {

enum class FaultFamily { kSdxi, kHca };

/// The families that some functions have.
struct FaultFamilies {
  bool sdxi = false;
  bool hca = false;
};

/// The families of the function with this name; of all functions if it is empty. Nothing: there is
/// no such function.
using FindFamilies = std::function<std::optional<FaultFamilies>(std::string_view function)>;

/// The family of a rule: that of its function. Without function=, that of its action.
util::Result<FaultFamily> family_of(std::string_view rule, const FindFamilies& find);

}  // namespace softhca::server
