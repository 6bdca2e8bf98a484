// A rule that injects a fault, as users write it: the events of a function that it matches, and its
// effect on them.
//
//   function=sdxi0,context=3,operation=DSC_DMAB_COPY,nth=5,do=fail
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sdxi/format.h"
#include "sdxi/operation.h"
#include "util/clock.h"
#include "util/result.h"
#include "util/rule_words.h"

namespace softhca::sdxi {

enum class FaultAction : std::uint8_t {
  kDelay,           ///< a descriptor is accepted, but executed only after a delay
  kStall,           ///< a descriptor is accepted, but not executed while the rule is set
  kFail,            ///< a descriptor ends in an execution error
  kBadCompletion,   ///< a descriptor is executed, but its CST_BLK has er = 1; no other error is
                    ///< reported
  kLoseCompletion,  ///< a descriptor is executed, but its CST_BLK is not touched
  kLoseInterrupt,   ///< an interrupt, of a descriptor or the function's own, is not raised
  kHangSoftStop,    ///< a soft stop of a context does not end; a hard one does
  kHangStop,        ///< no stop of a context ends while the rule is set
};

/// True if a rule may say do=NAME.
bool is_action(std::string_view name);
/// The action's name in a rule.
std::string_view to_string(FaultAction action);

/// Without nth and every, it acts on each event that it matches.
struct FaultRule : util::RuleTurns {
  FaultAction action = FaultAction::kFail;
  std::string function;                  ///< its name; empty: any
  std::optional<ContextNumber> context;  ///< nothing: any
  const Operation* operation = nullptr;  ///< null: any
  util::Duration delay{};                ///< of kDelay
  std::uint16_t error_class = 0;         ///< of kFail: ERRLOG_HD_ENT.err_class
};

/// The syntax of a rule, for help texts.
inline constexpr std::string_view kFaultHelp =
    "[function=NAME,][context=N,][operation=DSC_...,][nth=N|every=N,]do=ACTION, where ACTION is "
    "delay,time=N(us|ms|s); stall; fail[,class=HEX]; bad-completion; lose-completion; "
    "lose-interrupt; hang-soft-stop; hang-stop";

util::Result<FaultRule> parse_fault(std::string_view text);
/// Formats the rule as text that parse_fault() accepts.
std::string to_text(const FaultRule& rule);

}  // namespace softhca::sdxi
