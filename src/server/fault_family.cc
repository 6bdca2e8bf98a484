#include "server/fault_family.h"

#include <fmt/format.h>

#include <algorithm>

#include "hca/fault_kinds.h"
#include "sdxi/fault_rule.h"
#include "util/rule_words.h"

namespace softhca::server {
namespace {

/// The value of a key, or nothing. A rule that cannot be split has none; its parser says why.
std::string_view value_of(std::string_view rule, std::string_view key) {
  const auto words = util::split_rule(rule);
  if (!words) return {};
  const auto found = std::ranges::find(*words, key, &util::RuleWord::key);
  return found == words->end() ? std::string_view() : found->value;
}

}  // namespace

util::Result<FaultFamily> family_of(std::string_view rule, const FindFamilies& find) {
  const auto function = value_of(rule, "function");
  const auto families = find(function);
  if (!families) return util::fail(fmt::format("there is no function '{}'", function));
  if (!function.empty() && !families->sdxi && !families->hca) {
    return util::fail(fmt::format("{} is no SDXI function: it has no faults", function));
  }
  if (families->hca != families->sdxi)
    return families->hca ? FaultFamily::kHca : FaultFamily::kSdxi;
  const auto action = value_of(rule, "do");
  const auto kinds = hca::fault_kinds();
  const bool hca =
      families->hca && std::ranges::find(kinds, action, &hca::FaultKind::name) != kinds.end();
  if (hca && sdxi::is_action(action)) {
    return util::fail(
        fmt::format("do={} needs function=: there are SDXI functions and HCAs", action));
  }
  return hca ? FaultFamily::kHca : FaultFamily::kSdxi;
}

}  // namespace softhca::server
