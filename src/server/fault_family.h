// The two families of fault rules: those of SDXI functions (sdxi/fault_rule.h) and those of HCAs
// (hca/fault_rule.h).
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "hca/fault_dialect.h"
#include "util/result.h"

namespace softhca::server {

enum class FaultFamily { kSdxi, kHca };

/// The families that some functions have.
struct FaultFamilies {
  bool sdxi = false;
  std::vector<const hca::FaultDialect*> hcas;  ///< each kind of HCA once

  /// Null: no HCA.
  void add_hca(const hca::FaultDialect* hca);
};

/// The family of one rule, and the kinds of HCA that it is for.
struct RuleFamily {
  FaultFamily family = FaultFamily::kSdxi;
  std::vector<const hca::FaultDialect*> hcas = {};
};

/// The families of the function with this name; of all functions if it is empty. Nothing: there is
/// no such function.
using FindFamilies = std::function<std::optional<FaultFamilies>(std::string_view function)>;

/// The family of a rule: that of its function. Without function=, that of its action.
util::Result<RuleFamily> family_of(std::string_view rule, const FindFamilies& find);

/// Parses a rule for HCAs. Without function= it may be for several kinds: then it must be valid for
/// each, with the same meaning.
/// @pre `hcas` is not empty
util::Result<hca::FaultRule> parse_hca_rule(std::string_view text,
                                            const std::vector<const hca::FaultDialect*>& hcas);

}  // namespace softhca::server
