#include "util/rule_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "util/nearest.h"

namespace softhca::util {
namespace {

struct Unit {
  std::string_view name;
  Duration length;
};
constexpr std::array<Unit, 3> kUnits{{{"us", std::chrono::microseconds(1)},
                                      {"ms", std::chrono::milliseconds(1)},
                                      {"s", std::chrono::seconds(1)}}};
constexpr Duration kTimeMax = std::chrono::hours(1);

std::string nearest_of(std::string_view word, std::span<const std::string_view> names) {
  return nearest(word, std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace

Result<std::vector<RuleWord>> split_rule(std::string_view text) {
  std::vector<RuleWord> words;
  while (!text.empty()) {
    const auto item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) return fail(fmt::format("'{}': want key=value", item));
    const auto key = item.substr(0, equals);
    if (std::ranges::find(words, key, &RuleWord::key) != words.end()) {
      return fail(fmt::format("{}= is given twice", key));
    }
    words.push_back({.key = key, .value = item.substr(equals + 1)});
  }
  return words;
}

Error wants(RuleWord word, std::string_view what) {
  return {fmt::format("{}={}: want {}", word.key, word.value, what)};
}

Error unknown_key(std::string_view key, std::span<const std::string_view> keys) {
  return {fmt::format("unknown key '{}'{}", key, nearest_of(key, keys))};
}

Error unknown_name(RuleWord word, std::string_view what, std::span<const std::string_view> names) {
  return {fmt::format("{}={}: no such {}{}", word.key, word.value, what,
                      nearest_of(word.value, names))};
}

std::optional<Duration> parse_time(std::string_view text) {
  const auto digits = text.find_first_not_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  const auto count = parse_number<std::uint32_t>(text.substr(0, digits));
  const auto unit = std::ranges::find(kUnits, text.substr(digits), &Unit::name);
  if (!count || unit == kUnits.end() || *count > kTimeMax / unit->length) return std::nullopt;
  return *count * unit->length;
}

std::string time_text(Duration time) {
  auto best = kUnits.front();
  for (const auto& unit : kUnits) {
    if (time % unit.length == Duration::zero()) best = unit;
  }
  return fmt::format("{}{}", time / best.length, best.name);
}

Result<Duration> rule_time(RuleWord word) {
  const auto time = parse_time(word.value);
  if (!time) return tl::unexpected(wants(word, "e.g. 50us, 20ms or 3s"));
  return *time;
}

bool is_turns_key(std::string_view key) { return key == "nth" || key == "every"; }

Result<void> apply_turns(RuleTurns& turns, RuleWord word) {
  const auto count = rule_number<std::uint64_t>(word, 1);
  if (!count) return tl::unexpected(count.error());
  (word.key == "nth" ? turns.nth : turns.every) = *count;
  if (turns.nth != 0 && turns.every != 0) return fail("nth= and every= exclude each other");
  return {};
}

std::string turns_text(const RuleTurns& turns) {
  std::string text;
  if (turns.nth != 0) text += fmt::format("nth={},", turns.nth);
  if (turns.every != 0) text += fmt::format("every={},", turns.every);
  return text;
}

}  // namespace softhca::util
