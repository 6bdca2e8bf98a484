// Injected faults (faults.h) that act on a descriptor or on a stop. None of this runs while no rule
// is set.
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

  /// True if hold() has a fault to apply.
  static bool affects(const Context& context) {
    return context.stop.hang != 0 || context.execution.injected.any();
  }
  /// After parsing: applies the rules that match the descriptor.
  TurnEnd inject(Context& context);
  /// Before a turn: a rule may hold the context where it is, or end its descriptor.
  TurnEnd hold(Context& context);
  /// Completes a descriptor that a rule acted on. False if Completions::complete() returned false.
  bool complete(Context& context);

 private:
  Turn fail(Context& context);

  Parts parts_;
  util::Time now_{};
};

}  // namespace softhca::sdxi
