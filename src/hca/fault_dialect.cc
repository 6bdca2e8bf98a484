#include "hca/fault_dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace softhca::hca {
namespace {

/// The gap that the rule meets; null if there is none.
const FaultGap* gap_of(std::string_view text, const FaultDialect& dialect) {
  const auto words = util::split_rule(text);
  if (!words) return nullptr;
  const auto kinds = fault_kinds();
  const auto action = std::ranges::find(*words, "do", &util::RuleWord::key);
  if (action == words->end()) return nullptr;
  const auto kind = std::ranges::find(kinds, action->value, &FaultKind::name);
  if (kind == kinds.end()) return nullptr;
  const auto meets = [&](const FaultGap& gap) {
    const auto word = std::ranges::find(*words, gap.key, &util::RuleWord::key);
    return gap.action == kind->action && word != words->end() &&
           (gap.value.empty() || gap.value == word->value);
  };
  const auto found = std::ranges::find_if(dialect.gaps, meets);
  return found == dialect.gaps.end() ? nullptr : &*found;
}

/// The end of the gaps from `first` on that have its action and its reason.
auto end_of_alike(std::vector<FaultGap>::const_iterator first,
                  std::vector<FaultGap>::const_iterator last) {
  return std::find_if_not(first, last, [&](const FaultGap& gap) {
    return gap.action == first->action && gap.why == first->why;
  });
}

/// @pre the gaps have one reason
std::string refused_text(std::span<const FaultGap> gaps) {
  std::vector<std::string> words;
  for (const auto& gap : gaps) words.push_back(fmt::format("`{}={}`", gap.key, gap.value));
  return fmt::format("{} {} refused: {}", fmt::join(words, ", "), gaps.size() == 1 ? "is" : "are",
                     gaps.front().why);
}

}  // namespace

util::Result<FaultRule> parse_fault(std::string_view text, const FaultDialect& dialect) {
  if (const auto* gap = gap_of(text, dialect)) {
    return util::fail(fmt::format("{}={}: not with do={} on {}: {}", gap->key, gap->value,
                                  fault_kind(gap->action).name, dialect.device, gap->why));
  }
  auto rule = parse_fault(text, dialect.names);
  if (!rule || !dialect.only_named_statuses || rule->action != FaultAction::kFailCommand) {
    return rule;
  }
  const auto& known = dialect.names.statuses;
  if (std::ranges::find(known, rule->status, &FaultName::value) != known.end()) return rule;
  return util::fail(
      fmt::format("status={:#x}: {} has no such status", rule->status, dialect.device));
}

std::string dialect_table(const FaultDialect& dialect) {
  std::string text = fmt::format("| `do=` | {} |\n|---|---|\n", dialect.device);
  for (const auto& kind : fault_kinds()) {
    std::vector<std::string> parts;
    for (const auto& note : dialect.notes) {
      if (note.action == kind.action) parts.emplace_back(note.text);
    }
    for (auto gap = dialect.gaps.begin(); gap != dialect.gaps.end();) {
      const auto end = end_of_alike(gap, dialect.gaps.end());
      if (gap->action == kind.action) parts.push_back(refused_text({gap, end}));
      gap = end;
    }
    if (parts.empty()) parts.emplace_back("as above");
    text += fmt::format("| `{}` | {} |\n", kind.name, fmt::join(parts, ". "));
  }
  return text;
}

}  // namespace softhca::hca
