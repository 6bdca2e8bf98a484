// The keys and the actions of network rules as tables, from which the parser, the help and
// docs/faults.md come.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "fabric/fault_rule.h"
#include "util/rule_words.h"

namespace softhca::fabric {

/// A key of a rule, with its value.
struct FaultKey {
  std::string_view name;
  std::string_view value;  ///< as the help shows it
  std::string_view what;
  util::Result<void> (*set)(FaultRule& rule, util::RuleWord word);
  /// The value as set() takes it; empty: the default.
  std::string (*text)(const FaultRule& rule);
};

/// The keys that say which frames a rule matches.
std::span<const FaultKey> match_keys();
/// The keys of the actions' arguments.
std::span<const FaultKey> argument_keys();

struct FaultKind {
  FaultAction action;
  std::string_view name;
  std::array<std::string_view, 2> required;  ///< argument keys
  std::array<std::string_view, 2> optional;
  std::string_view what;  ///< what happens
  std::string_view seen;  ///< what a program or driver sees
};

std::span<const FaultKind> fault_kinds();
const FaultKind& kind_of(FaultAction action);
/// "delay,time=T[,jitter=T]"
std::string usage_of(const FaultKind& kind);

/// The syntax of a rule in one line, for error messages and options.
const std::string& network_fault_help();
/// The tables as Markdown, for docs/faults.md.
std::string network_faults_page();

}  // namespace softhca::fabric
