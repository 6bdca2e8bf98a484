#include "sdxi/fault_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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

constexpr std::array<std::string_view, 8> kKeys{"function", "context", "operation", "nth",
                                                "every",    "do",      "time",      "class"};

tl::unexpected<util::Error> with_help(const util::Error& error) {
  return util::fail(fmt::format("{}; a rule is {}", error.message, kFaultHelp));
}

/// Keys that the text contained, besides the rule's own fields.
struct Given {
  bool action = false;
  bool delay = false;
  bool error_class = false;
};

util::Result<void> apply_match(FaultRule& rule, util::RuleWord word) {
  const auto& [key, value] = word;
  if (key == "function") {
    if (value.empty()) return util::fail("function= is empty");
    rule.function = value;
  } else if (key == "context") {
    const auto context = util::rule_number<ContextNumber>(word);
    if (!context) return tl::unexpected(context.error());
    rule.context = *context;
  } else if (key == "operation") {
    const auto found = std::ranges::find(operations(), value, &Operation::name);
    if (found == operations().end()) {
      return util::fail(
          fmt::format("operation={}: no operation of this name; they are called as in SDXI 6, e.g. "
                      "DSC_DMAB_COPY",
                      value));
    }
    rule.operation = &*found;
  } else if (util::is_turns_key(key)) {
    return util::apply_turns(rule, word);
  } else {
    return with_help(util::unknown_key(key, kKeys));
  }
  return {};
}

util::Result<void> apply(FaultRule& rule, Given& given, util::RuleWord word) {
  const auto& [key, value] = word;
  if (key == "do") {
    const auto found = std::ranges::find(kActions, value, [](const auto& a) { return a.first; });
    if (found == kActions.end()) {
      std::vector<std::string_view> names;
      for (const auto& action : kActions) names.push_back(action.first);
      return with_help(util::unknown_name(word, "action", names));
    }
    rule.action = found->second;
    given.action = true;
  } else if (key == "time") {
    const auto time = util::rule_time(word);
    if (!time) return tl::unexpected(time.error());
    rule.delay = *time;
    given.delay = true;
  } else if (key == "class") {
    const auto error_class = util::parse_number<std::uint16_t>(value, 16);
    if (!error_class) return tl::unexpected(util::wants(word, "up to 4 hex digits"));
    rule.error_class = *error_class;
    given.error_class = true;
  } else {
    return apply_match(rule, word);
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

bool is_action(std::string_view name) {
  return std::ranges::find(kActions, name, [](const auto& a) { return a.first; }) != kActions.end();
}

std::string_view to_string(FaultAction action) {
  return std::ranges::find(kActions, action, [](const auto& a) { return a.second; })->first;
}

util::Result<FaultRule> parse_fault(std::string_view text) {
  FaultRule rule;
  Given given;
  const auto words = util::split_rule(text);
  if (!words) return with_help(words.error());
  for (const auto& word : *words) {
    if (const auto applied = apply(rule, given, word); !applied) {
      return tl::unexpected(applied.error());
    }
  }
  if (const auto checked = check(rule, given); !checked) return tl::unexpected(checked.error());
  return rule;
}

std::string to_text(const FaultRule& rule) {
  std::string text;
  if (!rule.function.empty()) text += fmt::format("function={},", rule.function);
  if (rule.context) text += fmt::format("context={},", *rule.context);
  if (rule.operation != nullptr) text += fmt::format("operation={},", rule.operation->name);
  text += util::turns_text(rule);
  text += fmt::format("do={}", to_string(rule.action));
  if (rule.action == FaultAction::kDelay)
    text += fmt::format(",time={}", util::time_text(rule.delay));
  if (rule.error_class != 0) text += fmt::format(",class={:#06x}", rule.error_class);
  return text;
}

}  // namespace softhca::sdxi
