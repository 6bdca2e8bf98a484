// Injected faults (faults.h) in the life of a descriptor and of a stop. None of this runs while
// there is no rule.
#pragma once

#include "sdxi/completion.h"
#include "sdxi/context_stops.h"
#include "sdxi/faults.h"
#include "sdxi/turn.h"

namespace softhca::sdxi {

class DescriptorFaults {
 public:
  struct Parts {
    const DeviceOptions& options;
    const Completions& completions;
    ContextStops& stops;
    Faults& faults;
  };

  explicit DescriptorFaults(const Parts& parts) : parts_(parts) {}

  bool armed() const { return parts_.faults.armed(); }
  const Faults& rules() const { return parts_.faults; }
  void set_now(util::Time now) { now_ = now; }

  /// Whether hold() has anything to look at.
  static bool affects(const Context& context) {
    return context.hang != 0 || context.execution.injected.any();
  }
  /// After parsing: what the rules have in store for the descriptor.
  TurnEnd inject(Context& context);
  /// Before a turn: whether a rule keeps the context where it is, or ends its descriptor.
  TurnEnd hold(Context& context);
  /// Completion of a descriptor that a rule has been applied to. False: as Completions::complete().
  bool complete(Context& context);

 private:
  Turn fail(Context& context);

  Parts parts_;
  util::Time now_{};
};

}  // namespace softhca::sdxi
