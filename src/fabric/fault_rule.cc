#include "fabric/fault_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "fabric/fault_table.h"

namespace softhca::fabric {
namespace {

tl::unexpected<util::Error> with_help(const util::Error& error) {
  return util::fail(fmt::format("{}; a rule is {}", error.message, network_fault_help()));
}

const FaultKey* find_key(std::span<const FaultKey> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &FaultKey::name);
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string_view> all_keys() {
  std::vector<std::string_view> names{"do"};
  for (const auto& key : match_keys()) names.push_back(key.name);
  for (const auto& key : argument_keys()) names.push_back(key.name);
  return names;
}

util::Result<const FaultKind*> find_kind(util::RuleWord word) {
  const auto kinds = fault_kinds();
  const auto found = std::ranges::find(kinds, word.value, &FaultKind::name);
  if (found != kinds.end()) return &*found;
  std::vector<std::string_view> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  return with_help(util::unknown_name(word, "action", names));
}

template <std::size_t N>
bool has(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

/// Checks the arguments that were given against those of the action.
util::Result<void> check_arguments(const FaultKind& kind,
                                   const std::vector<std::string_view>& given) {
  for (const auto key : given) {
    if (!has(kind.required, key) && !has(kind.optional, key)) {
      return util::fail(
          fmt::format("{}= does not go with do={}; want do={}", key, kind.name, usage_of(kind)));
    }
  }
  for (const auto key : kind.required) {
    if (!key.empty() && std::ranges::find(given, key) == given.end()) {
      return util::fail(fmt::format("do={} needs {}=; want do={}", kind.name, key, usage_of(kind)));
    }
  }
  return {};
}

util::Result<void> check(const FaultRule& rule) {
  if (rule.action != FaultAction::kLinkDown) return {};
  if (rule.direction == Direction::kRx) {
    return util::fail("direction=rx does not go with do=link-down: a link has both directions");
  }
  if (rule.period == util::Duration::zero()) return {};
  if (rule.time == util::Duration::zero()) return util::fail("period= needs time=");
  if (rule.period <= rule.time) return util::fail("period= is not longer than time=");
  return {};
}

}  // namespace

bool FaultRule::acts_at_once() const {
  return action == FaultAction::kLinkDown && !qp && opcode.empty() && !from && !to && !kind &&
         turns.nth == 0 && turns.every == 0 && probability == 1;
}

bool is_network_rule(std::string_view text) { return text.starts_with("port="); }

util::Result<FaultRule> parse_fault(std::string_view text) {
  const auto words = util::split_rule(text);
  if (!words) return with_help(words.error());
  FaultRule rule;
  const FaultKind* kind = nullptr;
  std::vector<std::string_view> given;
  for (const auto& word : *words) {
    if (word.key == "do") {
      const auto found = find_kind(word);
      if (!found) return tl::unexpected(found.error());
      kind = *found;
      continue;
    }
    const auto* key = find_key(match_keys(), word.key);
    if (key == nullptr) {
      key = find_key(argument_keys(), word.key);
      if (key == nullptr) return with_help(util::unknown_key(word.key, all_keys()));
      given.push_back(key->name);
    }
    if (const auto set = key->set(rule, word); !set) return tl::unexpected(set.error());
  }
  if (rule.port.empty()) return util::fail("port= is missing: a port's name, or * for every port");
  if (kind == nullptr) return with_help({"do= is missing"});
  rule.action = kind->action;
  if (const auto good = check_arguments(*kind, given); !good) return tl::unexpected(good.error());
  if (const auto good = check(rule); !good) return tl::unexpected(good.error());
  return rule;
}

std::string to_text(const FaultRule& rule) {
  std::string text;
  for (const auto& key : match_keys()) {
    if (const auto value = key.text(rule); !value.empty()) {
      text += fmt::format("{}={},", key.name, value);
    }
  }
  const auto& kind = kind_of(rule.action);
  text += fmt::format("do={}", kind.name);
  for (const auto& key : argument_keys()) {
    if (!has(kind.required, key.name) && !has(kind.optional, key.name)) continue;
    if (const auto value = key.text(rule); !value.empty()) {
      text += fmt::format(",{}={}", key.name, value);
    }
  }
  return text;
}

FaultRule loss_rule(double probability, std::uint64_t seed) {
  return {.port = "*", .probability = probability, .seed = seed, .action = FaultAction::kLose};
}

}  // namespace softhca::fabric
