#include "sdxi/fault_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace softhca::sdxi {
namespace {

constexpr std::array<std::pair<std::string_view, FaultAction>, 8> kActions{{
    {"delay", FaultAction::kDelay},
    {"stall", FaultAction::kStall},
    {"fail", FaultAction::kFail},
    {"bad-completion", FaultAction::kBadCompletion},
    {"lose-completion", FaultAction::kLoseCompletion},
    {"lose-interrupt", FaultAction::kLoseInterrupt},
    {"hang-soft-stop", FaultAction::kHangSoftStop},
    {"hang-stop", FaultAction::kHangStop},
}};

struct Unit {
  std::string_view name;
  util::Duration length;
};
constexpr std::array<Unit, 3> kUnits{{{"us", std::chrono::microseconds(1)},
                                      {"ms", std::chrono::milliseconds(1)},
                                      {"s", std::chrono::seconds(1)}}};
constexpr util::Duration kTimeMax = std::chrono::hours(1);

template <class T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Keys that the text contained, besides the rule's own fields.
struct Given {
  bool action = false;
  bool delay = false;
  bool error_class = false;
};

util::Result<void> apply_match(FaultRule& rule, std::string_view key, std::string_view value) {
  if (key == "function") {
    if (value.empty()) return util::fail("function= is empty");
    rule.function = value;
  } else if (key == "context") {
    rule.context = parse_number<ContextNumber>(value);
    if (!rule.context) return util::fail(fmt::format("context={}: want 0 to 65535", value));
  } else if (key == "operation") {
    const auto found = std::ranges::find(operations(), value, &Operation::name);
    if (found == operations().end()) {
      return util::fail(
          fmt::format("operation={}: no operation of this name; they are called as in SDXI 6, e.g. "
                      "DSC_DMAB_COPY",
                      value));
    }
    rule.operation = &*found;
  } else if (key == "nth" || key == "every") {
    const auto count = parse_number<std::uint64_t>(value);
    if (!count || *count == 0) return util::fail(fmt::format("{}={}: want 1 or more", key, value));
    (key == "nth" ? rule.nth : rule.every) = *count;
  } else {
    return util::fail(fmt::format("unknown key '{}'; a rule is {}", key, kFaultHelp));
  }
  return {};
}

util::Result<void> apply(FaultRule& rule, Given& given, std::string_view key,
                         std::string_view value) {
  if (key == "do") {
    const auto found = std::ranges::find(kActions, value, [](const auto& a) { return a.first; });
    if (found == kActions.end()) {
      return util::fail(fmt::format("do={}: no such action; a rule is {}", value, kFaultHelp));
    }
    rule.action = found->second;
    given.action = true;
  } else if (key == "time") {
    const auto time = parse_time(value);
    if (!time) return util::fail(fmt::format("time={}: want e.g. 50us, 20ms or 3s", value));
    rule.delay = *time;
    given.delay = true;
  } else if (key == "class") {
    const auto digits = value.starts_with("0x") ? value.substr(2) : value;
    const auto error_class = parse_number<std::uint16_t>(digits, 16);
    if (!error_class) return util::fail(fmt::format("class={}: want up to 4 hex digits", value));
    rule.error_class = *error_class;
    given.error_class = true;
  } else {
    return apply_match(rule, key, value);
  }
  return {};
}

util::Result<void> check(const FaultRule& rule, const Given& given) {
  using enum FaultAction;
  if (!given.action) return util::fail("do= is missing");
  if (given.delay != (rule.action == kDelay)) {
    return util::fail(given.delay ? "time= goes with do=delay only" : "do=delay needs time=");
  }
  if (given.error_class && rule.action != kFail) {
    return util::fail("class= goes with do=fail only");
  }
  if (rule.nth != 0 && rule.every != 0) return util::fail("nth= and every= exclude each other");
  if (rule.operation == nullptr) return {};
  if (rule.action == kHangStop || rule.action == kHangSoftStop) {
    return util::fail("operation= does not go with a stop that hangs");
  }
  if (rule.action == kLoseInterrupt && !raises_interrupt(*rule.operation)) {
    return util::fail(fmt::format("{} raises no interrupt", rule.operation->name));
  }
  return {};
}

}  // namespace

std::optional<util::Duration> parse_time(std::string_view text) {
  const auto digits = text.find_first_not_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  const auto count = parse_number<std::uint32_t>(text.substr(0, digits));
  const auto unit = std::ranges::find(kUnits, text.substr(digits), &Unit::name);
  if (!count || unit == kUnits.end() || *count > kTimeMax / unit->length) return std::nullopt;
  return *count * unit->length;
}

std::string time_text(util::Duration time) {
  auto best = kUnits.front();
  for (const auto& unit : kUnits) {
    if (time % unit.length == util::Duration::zero()) best = unit;
  }
  return fmt::format("{}{}", time / best.length, best.name);
}

std::string_view to_string(FaultAction action) {
  return std::ranges::find(kActions, action, [](const auto& a) { return a.second; })->first;
}

util::Result<FaultRule> parse_fault(std::string_view text) {
  FaultRule rule;
  Given given;
  while (!text.empty()) {
    const auto item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      return util::fail(fmt::format("'{}': want key=value; a rule is {}", item, kFaultHelp));
    }
    const auto applied = apply(rule, given, item.substr(0, equals), item.substr(equals + 1));
    if (!applied) return tl::unexpected(applied.error());
  }
  if (const auto checked = check(rule, given); !checked) return tl::unexpected(checked.error());
  return rule;
}

std::string to_text(const FaultRule& rule) {
  std::string text;
  if (!rule.function.empty()) text += fmt::format("function={},", rule.function);
  if (rule.context) text += fmt::format("context={},", *rule.context);
  if (rule.operation != nullptr) text += fmt::format("operation={},", rule.operation->name);
  if (rule.nth != 0) text += fmt::format("nth={},", rule.nth);
  if (rule.every != 0) text += fmt::format("every={},", rule.every);
  text += fmt::format("do={}", to_string(rule.action));
  if (rule.action == FaultAction::kDelay) text += fmt::format(",time={}", time_text(rule.delay));
  if (rule.error_class != 0) text += fmt::format(",class={:#06x}", rule.error_class);
  return text;
}

}  // namespace softhca::sdxi
