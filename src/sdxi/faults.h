// Fault injection: the rules of a function group, and their effects on the events that the
// functions report. Every firing is counted, so that a user who injects a fault can see that it
// happened.
//
// Without rules nothing is looked up: armed() is one load. The loop that runs the group owns this
// object; armed() may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "sdxi/fault_rule.h"
#include "sdxi/injected.h"
#include "util/rule_list.h"

namespace softhca::sdxi {

class Faults : public util::RuleList<FaultRule> {
 public:
  // RuleList's, and the functions notice the change.
  FaultId add(FaultRule rule);
  bool remove(FaultId id);
  void clear();

  bool armed() const { return armed_.load(std::memory_order_relaxed); }
  /// Changes when a rule is added or removed: contexts that a rule held back must be looked at
  /// again.
  std::uint64_t generation() const { return generation_; }

  /// A descriptor that was accepted. Later effects of its faults are reported by fired().
  struct Accepted {
    std::string_view function;
    ContextNumber context;
    const Operation& operation;
    bool has_completion;  ///< a completion status block
  };
  Injected accept(const Accepted& descriptor);
  void fired(FaultId id);

  /// Called when a stop of a context begins. Returns the rule that keeps it from ending, which
  /// counts as fired.
  FaultId begin_stop(std::string_view function, ContextNumber context, bool hard);
  /// True if the rule is still set.
  bool holds(FaultId id) const { return find(id) != nullptr; }
  bool holds_stop(FaultId id, bool hard) const;

  /// Message 0, the function's own interrupt. True if a rule drops it.
  bool lose_message(std::string_view function);

 private:
  void changed();

  std::uint64_t generation_ = 0;
  std::atomic<bool> armed_ = false;
};

}  // namespace softhca::sdxi
