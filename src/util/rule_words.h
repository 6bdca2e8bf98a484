// Rules that users write as one word: KEY=VALUE,KEY=VALUE,... Here is what all kinds of rules
// share.
//
//   function=sdxi0,context=3,nth=5,do=delay,time=50us
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "util/clock.h"
#include "util/result.h"

namespace softhca::util {

struct RuleWord {
  std::string_view key;
  std::string_view value;
};

/// The words of a rule; they refer to `text`. Fails if one is not KEY=VALUE, or if a key occurs
/// twice.
Result<std::vector<RuleWord>> split_rule(std::string_view text);

/// The error message about a word: what its key wants.
Error wants(RuleWord word, std::string_view what);
/// The error message about a key that a rule does not have, with the nearest one that it has.
Error unknown_key(std::string_view key, std::span<const std::string_view> keys);
/// The error message about a name that is none of `names`, with the nearest one of them.
/// @param what what it names, e.g. "action"
Error unknown_name(RuleWord word, std::string_view what, std::span<const std::string_view> names);

/// A whole number: hexadecimal after 0x, otherwise of the base.
template <std::unsigned_integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The number of a word. Fails if it is not between `min` and `max`.
template <std::unsigned_integral T>
Result<T> rule_number(RuleWord word, T min = 0, T max = std::numeric_limits<T>::max()) {
  const auto value = parse_number<T>(word.value);
  if (value && *value >= min && *value <= max) return *value;
  const bool open = max == std::numeric_limits<std::uint64_t>::max();
  return tl::unexpected(wants(
      word, std::to_string(min) + (open ? std::string(" or more") : " to " + std::to_string(max))));
}

/// Parses a time as users write it: 50us, 20ms or 3s; at most an hour.
std::optional<Duration> parse_time(std::string_view text);
/// Formats a time as text that parse_time() accepts.
std::string time_text(Duration time);
Result<Duration> rule_time(RuleWord word);

/// Which of the events that a rule matches it acts on.
struct RuleTurns {
  std::uint64_t nth = 0;    ///< only on the nth one; 0: on all
  std::uint64_t every = 0;  ///< on each nth one; 0: on all

  /// True if the rule acts on its event of this number; the first one is 1.
  bool include(std::uint64_t event) const {
    return nth != 0 ? event == nth : every == 0 || event % every == 0;
  }
};

/// True for the keys of RuleTurns.
bool is_turns_key(std::string_view key);
/// Takes the word nth=N or every=N; they exclude each other.
Result<void> apply_turns(RuleTurns& turns, RuleWord word);
/// Formats the turns as the words of a rule, with a comma behind each.
std::string turns_text(const RuleTurns& turns);

}  // namespace softhca::util
