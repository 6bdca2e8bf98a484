#include "hca/fault_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace softhca::hca {
namespace {

using util::Result;
using util::RuleWord;

/// Queue numbers have 24 bits.
constexpr std::uint32_t kNumberMax = 0xffffff;

constexpr std::array<std::string_view, 9> kKeys{"function", "qp", "cq",     "opcode",  "nth",
                                                "every",    "do", "status", "syndrome"};

constexpr FaultName name_of(std::string_view name, rdma::WorkStatus status) {
  return {name, static_cast<std::uint32_t>(status)};
}
constexpr std::array<FaultName, 12> kEnds{{
    name_of("LOC_LEN_ERR", rdma::WorkStatus::kLocalLength),
    name_of("LOC_QP_OP_ERR", rdma::WorkStatus::kLocalQpOperation),
    name_of("LOC_PROT_ERR", rdma::WorkStatus::kLocalProtection),
    name_of("WR_FLUSH_ERR", rdma::WorkStatus::kFlushed),
    name_of("MW_BIND_ERR", rdma::WorkStatus::kMemoryWindowBind),
    name_of("BAD_RESP_ERR", rdma::WorkStatus::kBadResponse),
    name_of("LOC_ACCESS_ERR", rdma::WorkStatus::kLocalAccess),
    name_of("REM_INV_REQ_ERR", rdma::WorkStatus::kRemoteInvalidRequest),
    name_of("REM_ACCESS_ERR", rdma::WorkStatus::kRemoteAccess),
    name_of("REM_OP_ERR", rdma::WorkStatus::kRemoteOperation),
    name_of("RETRY_EXC_ERR", rdma::WorkStatus::kTransportRetryExceeded),
    name_of("RNR_RETRY_EXC_ERR", rdma::WorkStatus::kRnrRetryExceeded),
}};

tl::unexpected<util::Error> with_help(const util::Error& error) {
  return util::fail(fmt::format("{}; a rule is {}", error.message, fault_help()));
}

Result<std::uint32_t> number_of(RuleWord word, std::string_view what,
                                std::span<const FaultName> names) {
  const auto found = std::ranges::find(names, word.value, &FaultName::name);
  if (found != names.end()) return found->value;
  if (const auto number = util::parse_number<std::uint32_t>(word.value)) return *number;
  std::vector<std::string_view> all;
  for (const auto& name : names) all.push_back(name.name);
  return tl::unexpected(util::unknown_name(word, what, all));
}

/// The name of a number, or its digits.
std::string text_of(std::uint32_t value, std::span<const FaultName> names) {
  const auto found = std::ranges::find(names, value, &FaultName::value);
  return found != names.end() ? std::string(found->name) : fmt::format("{:#x}", value);
}

/// Finds the rule's action, on which the meaning of its other words depends.
Result<void> apply_action(FaultRule& rule, std::span<const RuleWord> words) {
  const auto word = std::ranges::find(words, "do", &RuleWord::key);
  if (word == words.end()) return util::fail("do= is missing");
  const auto kinds = fault_kinds();
  const auto found = std::ranges::find(kinds, word->value, &FaultKind::name);
  if (found != kinds.end()) {
    rule.action = found->action;
    return {};
  }
  std::vector<std::string_view> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  return with_help(util::unknown_name(*word, "action", names));
}

/// Fails unless the rule's kind takes the key.
Result<void> check_key(const FaultRule& rule, std::string_view key) {
  const auto& kind = rule.kind();
  const bool taken = key == "qp"       ? kind.takes(kTakesQp)
                     : key == "cq"     ? kind.takes(kTakesCq)
                     : key == "opcode" ? kind.takes(kTakesRequest | kTakesCommand)
                     : key == "status" ? kind.takes(kNeedsStatus)
                                       : kind.takes(kTakesSyndrome);
  if (taken) return {};
  return util::fail(fmt::format("{}= does not go with do={}", key, kind.name));
}

Result<void> apply_queue(std::optional<std::uint32_t>& queue, RuleWord word) {
  const auto number = util::rule_number<std::uint32_t>(word, 0, kNumberMax);
  if (!number) return tl::unexpected(number.error());
  queue = *number;
  return {};
}

Result<void> apply_opcode(FaultRule& rule, RuleWord word, const FaultNames& names) {
  const bool of_command = rule.kind().takes(kTakesCommand);
  const auto& known = of_command ? names.commands : names.requests;
  const auto number = number_of(word, of_command ? "command" : "request", known);
  if (!number) return tl::unexpected(number.error());
  const auto found = std::ranges::find(known, *number, &FaultName::value);
  if (found == known.end()) return tl::unexpected(util::wants(word, "one that has a name"));
  rule.opcode = found->name;
  return {};
}

Result<void> apply_end(FaultRule& rule, RuleWord word, const FaultNames& names) {
  const bool of_command = rule.action == FaultAction::kFailCommand;
  const auto known =
      of_command ? std::span<const FaultName>(names.statuses) : std::span<const FaultName>(kEnds);
  const auto number = number_of(word, "status", known);
  if (!number) return tl::unexpected(number.error());
  const bool is_known = std::ranges::find(known, *number, &FaultName::value) != known.end();
  if (of_command ? *number == 0 || *number > 0xff : !is_known) {
    return tl::unexpected(util::wants(word, "an error, by name"));
  }
  if (of_command) {
    rule.status = *number;
  } else {
    rule.end = static_cast<rdma::WorkStatus>(*number);
  }
  return {};
}

Result<void> apply_syndrome(FaultRule& rule, RuleWord word, const FaultNames& names) {
  const bool of_command = rule.action == FaultAction::kFailCommand;
  const auto number =
      number_of(word, "syndrome", of_command ? std::span<const FaultName>() : names.syndromes);
  if (!number) return tl::unexpected(number.error());
  if (!of_command && (*number == 0 || *number > 0xff)) {
    return tl::unexpected(util::wants(word, "1 to 0xff, or a name"));
  }
  rule.syndrome = *number;
  return {};
}

Result<void> apply(FaultRule& rule, RuleWord word, const FaultNames& names) {
  const auto& [key, value] = word;
  if (key == "do") return {};
  if (util::is_turns_key(key)) return util::apply_turns(rule, word);
  if (key == "function") {
    if (value.empty()) return util::fail("function= is empty");
    rule.function = value;
    return {};
  }
  if (std::ranges::find(kKeys, key) == kKeys.end()) {
    return with_help(util::unknown_key(key, kKeys));
  }
  if (auto checked = check_key(rule, key); !checked) return checked;
  if (key == "qp") return apply_queue(rule.qp, word);
  if (key == "cq") return apply_queue(rule.cq, word);
  if (key == "opcode") return apply_opcode(rule, word, names);
  if (key == "status") return apply_end(rule, word, names);
  return apply_syndrome(rule, word, names);
}

}  // namespace

std::span<const FaultName> work_status_names() { return kEnds; }

Result<FaultRule> parse_fault(std::string_view text, const FaultNames& names) {
  const auto words = util::split_rule(text);
  if (!words) return with_help(words.error());
  FaultRule rule;
  if (auto found = apply_action(rule, *words); !found) return tl::unexpected(found.error());
  for (const auto& word : *words) {
    if (auto applied = apply(rule, word, names); !applied) return tl::unexpected(applied.error());
  }
  if (rule.kind().takes(kNeedsStatus) && rule.status == 0 &&
      rule.end == rdma::WorkStatus::kSuccess) {
    return util::fail(fmt::format("do={} needs status=", rule.kind().name));
  }
  return rule;
}

std::string to_text(const FaultRule& rule, const FaultNames& names) {
  std::string text;
  if (!rule.function.empty()) text += fmt::format("function={},", rule.function);
  if (rule.qp) text += fmt::format("qp={:#x},", *rule.qp);
  if (rule.cq) text += fmt::format("cq={:#x},", *rule.cq);
  if (!rule.opcode.empty()) text += fmt::format("opcode={},", rule.opcode);
  text += util::turns_text(rule);
  text += fmt::format("do={}", rule.kind().name);
  if (rule.action == FaultAction::kFailCommand) {
    text += fmt::format(",status={}", text_of(rule.status, names.statuses));
  } else if (rule.action == FaultAction::kFailRequest) {
    text += fmt::format(",status={}", text_of(static_cast<std::uint32_t>(rule.end), kEnds));
  }
  if (rule.syndrome) {
    const bool named = rule.action == FaultAction::kInternalError;
    text += fmt::format(",syndrome={}", text_of(*rule.syndrome, named ? names.syndromes
                                                                      : std::vector<FaultName>()));
  }
  return text;
}

}  // namespace softhca::hca
