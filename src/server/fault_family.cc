#include "server/fault_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

void FaultFamilies::add_hca(const hca::FaultDialect* hca) {
  if (hca != nullptr && std::ranges::find(hcas, hca) == hcas.end()) hcas.push_back(hca);
}

util::Result<RuleFamily> family_of(std::string_view rule, const FindFamilies& find) {
  const auto function = value_of(rule, "function");
  auto families = find(function);
  if (!families) return util::fail(fmt::format("there is no function '{}'", function));
  const bool any_hca = !families->hcas.empty();
  if (!function.empty() && !families->sdxi && !any_hca) {
    return util::fail(fmt::format("{} has no faults", function));
  }
  bool hca = any_hca;
  if (any_hca == families->sdxi) {
    const auto action = value_of(rule, "do");
    const auto kinds = hca::fault_kinds();
    hca = any_hca && std::ranges::find(kinds, action, &hca::FaultKind::name) != kinds.end();
    if (hca && sdxi::is_action(action)) {
      return util::fail(
          fmt::format("do={} needs function=: there are SDXI functions and HCAs", action));
    }
  }
  if (!hca) return RuleFamily{};
  return RuleFamily{.family = FaultFamily::kHca, .hcas = std::move(families->hcas)};
}

util::Result<hca::FaultRule> parse_hca_rule(std::string_view text,
                                            const std::vector<const hca::FaultDialect*>& hcas) {
  auto rule = hca::parse_fault(text, *hcas.front());
  if (hcas.size() == 1) return rule;
  constexpr std::string_view kAll = "without function= a rule is for all kinds of HCAs";
  const auto& first = *hcas.front();
  for (const auto* hca : hcas) {
    const auto other = hca::parse_fault(text, *hca);
    if (!other) return util::fail(fmt::format("{}; {}", other.error().message, kAll));
    if (to_text(*other, hca->names) != to_text(*rule, first.names)) {
      return util::fail(fmt::format("it means one thing to {}, and another to {}; {}", first.device,
                                    hca->device, kAll));
    }
  }
  return rule;
}

}  // namespace softhca::server
