// Fault injection: the rules of a server's HCAs, and which of them act on an event. Every firing is
// counted, so that a user who injects a fault can see that it happened.
//
// Devices look at the rules only while there are any. The loop that runs the devices owns this
// object.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "hca/fault_rule.h"
#include "util/rule_list.h"

namespace softhca::hca {

using FaultId = util::RuleList<FaultRule>::Id;

/// Something that happens in an HCA, as rules match it.
struct FaultEvent {
  FaultAction action;  ///< the action that it is open to
  std::optional<std::uint32_t> qp = std::nullopt;
  std::optional<std::uint32_t> cq = std::nullopt;
  std::string_view opcode = {};
};

/// The devices must be notified when a rule is added or removed.
class Faults : public util::RuleList<FaultRule> {
 public:
  /// Counts the event for the rules that match it. Returns the first one that acts on it, or null.
  const Entry* take(std::string_view function, const FaultEvent& event);
  /// The first rule above `after` that acts once, when it is added. It has then acted on this
  /// function. Null if there is none.
  const Entry* take_immediate(std::string_view function, FaultId after);
};

/// The rules, for the parts of one device. While there is no rule, `rules` is null.
struct FaultHook {
  Faults* rules = nullptr;
  std::string_view function;  ///< the device's name

  explicit operator bool() const { return rules != nullptr; }
  /// The rule that acts on the event, or null. @pre there are rules
  const Faults::Entry* take(const FaultEvent& event) const { return rules->take(function, event); }
  /// True if the rule still exists.
  bool holds(FaultId id) const { return rules != nullptr && rules->find(id) != nullptr; }
};

}  // namespace softhca::hca
