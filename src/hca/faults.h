// Fault injection: the rules of a server's HCAs, and which of them act on an event. Every firing is
// counted, so that a user who injects a fault can see that it happened.
//
// Devices look at the rules only while there are any. The loop that runs the devices owns this
// object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hca/fault_rule.h"

namespace softhca::hca {

/// The number of a rule, never used twice; 0: none.
using FaultId = std::uint32_t;

/// Something that happens in an HCA, as rules match it.
struct FaultEvent {
  FaultAction action;  ///< the action that it is open to
  std::optional<std::uint32_t> qp = std::nullopt;
  std::optional<std::uint32_t> cq = std::nullopt;
  std::string_view opcode = {};
};

class Faults {
 public:
  struct Entry {
    FaultId id;
    FaultRule rule;
    std::uint64_t matched = 0;  ///< events that the rule matched
    std::uint64_t fired = 0;    ///< times that it acted
  };

  /// Most rules at a time: every event is compared with each.
  static constexpr std::size_t kMax = 1024;

  /// The devices must be notified of changes. @pre fewer than kMax
  FaultId add(FaultRule rule);
  /// The number of the next rule is at least this.
  void number_from(FaultId next) { next_ = std::max(next_, next); }
  FaultId next() const { return next_; }
  /// False if there is no such rule.
  bool remove(FaultId id);
  void clear() { entries_.clear(); }
  std::span<const Entry> rules() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  /// Null if there is no such rule.
  const Entry* find(FaultId id) const;

  /// Counts the event for the rules that match it. Returns the first one that acts on it, or null.
  const Entry* take(std::string_view function, const FaultEvent& event);
  /// The first rule above `after` that acts once, when it is added. It has then acted on this
  /// function. Null if there is none.
  const Entry* take_immediate(std::string_view function, FaultId after);

 private:
  std::vector<Entry> entries_;  ///< by ascending number
  FaultId next_ = 1;
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
