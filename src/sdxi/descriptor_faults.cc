#include "sdxi/descriptor_faults.h"

#include <algorithm>

namespace softhca::sdxi {

TurnEnd DescriptorFaults::inject(Context& context) {
  auto& execution = context.execution;
  const auto footer =
      util::View<spec::dsc_generic>(execution.descriptor).get(spec::dsc_generic::footer);
  auto& injected = execution.injected;
  injected = parts_.faults.accept({.function = parts_.options.name,
                                   .context = context.entry.number,
                                   .operation = *execution.operation,
                                   .has_completion = footer.get(spec::dsc_footer::np) == 0});
  if (!injected.any()) return std::nullopt;
  if (injected.hold != 0) {
    parts_.faults.fired(injected.hold);
    const bool forever = injected.delay > util::kNever - now_;
    context.held_until = forever ? util::kNever : now_ + injected.delay;
  }
  return hold(context);
}

TurnEnd DescriptorFaults::hold(Context& context) {
  if (context.stop.hang != 0) {
    if (parts_.faults.holds(context.stop.hang)) {
      context.held_until = util::kNever;
      return Turn::kHeld;
    }
    context.stop.hang = 0;
    if (context.stop.hard && context.execution.executing) {
      parts_.stops.abort(context);
      return Turn::kIdle;
    }
  }
  auto& injected = context.execution.injected;
  if (!context.execution.executing) return std::nullopt;
  if (injected.hold != 0) {
    if (context.held_until > now_ && parts_.faults.holds(injected.hold)) {
      if (!context.stop.begun) return Turn::kHeld;
      // The timeout of a soft stop still runs, and ends the hold (SDXI 4.3.5).
      if (!context.stop.abort_at) context.stop.abort_at = now_ + parts_.options.soft_stop_timeout;
      context.held_until = std::min(context.held_until, *context.stop.abort_at);
      return Turn::kHeld;
    }
    injected.hold = 0;
  }
  if (injected.fail != 0) return fail(context);
  return std::nullopt;
}

/// Ends the descriptor as if its operation had refused it.
Turn DescriptorFaults::fail(Context& context) {
  auto& execution = context.execution;
  const auto injected = execution.injected;
  execution.executing = false;
  ++context.descriptors;
  parts_.faults.fired(injected.fail);
  parts_.completions.complete_with_error(context.space,
                                         util::View<spec::dsc_generic>(execution.descriptor));
  parts_.stops.stop_for_error(
      context,
      {.step = spec::err_step::ERRV_DSC_GEN,
       .err_class = static_cast<spec::err_class>(injected.error_class),
       .reason = "the descriptor was made to fail by the fault rule of this number",
       .section = "SDXI 3.4",
       .value = injected.fail},
      execution.index);
  return Turn::kIdle;
}

bool DescriptorFaults::complete(Context& context) {
  auto& execution = context.execution;
  const auto injected = execution.injected;
  execution.injected = {};
  const util::View<spec::dsc_generic> descriptor(execution.descriptor);
  if (injected.lost_interrupt != 0) parts_.faults.fired(injected.lost_interrupt);
  if (injected.lost_completion != 0) {
    parts_.faults.fired(injected.lost_completion);
    return true;
  }
  if (injected.bad_completion == 0) return parts_.completions.complete(context.space, descriptor);
  parts_.faults.fired(injected.bad_completion);
  parts_.completions.complete_with_error(context.space, descriptor);
  return true;
}

}  // namespace softhca::sdxi
