// Injected faults in the life of a descriptor and of a stop (faults.h). None of this runs while
// there is no rule.
#include "sdxi/completion.h"
#include "sdxi/contexts.h"

namespace softhca::sdxi {

/// After parsing: what the rules have in store for the descriptor. Nothing: it goes on.
Contexts::End Contexts::inject(Context& context) {
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

/// Before a turn: whether a rule keeps the context where it is, or ends its descriptor.
Contexts::End Contexts::hold(Context& context) {
  if (context.hang != 0) {
    if (parts_.faults.holds(context.hang)) {
      context.held_until = util::kNever;
      return Turn::kHeld;
    }
    context.hang = 0;
  }
  auto& injected = context.execution.injected;
  if (!context.execution.executing) return std::nullopt;
  if (injected.hold != 0) {
    if (context.held_until > now_ && parts_.faults.holds(injected.hold)) {
      if (!context.stopping) return Turn::kHeld;
      // The wait of a soft stop goes on, and ends it (SDXI 4.3.5).
      if (!context.abort_at) context.abort_at = now_ + parts_.options.soft_stop_timeout;
      context.held_until = std::min(context.held_until, *context.abort_at);
      return Turn::kHeld;
    }
    injected.hold = 0;
  }
  if (injected.fail != 0) return fail_by_rule(context);
  return std::nullopt;
}

/// The descriptor ends like one that its operation refused.
Turn Contexts::fail_by_rule(Context& context) {
  auto& execution = context.execution;
  const auto injected = execution.injected;
  execution.executing = false;
  ++context.descriptors;
  parts_.faults.fired(injected.fail);
  complete_with_error(parts_.registers, context.space,
                      util::View<spec::dsc_generic>(execution.descriptor));
  stop_for_error(context,
                 {.step = spec::err_step::ERRV_DSC_GEN,
                  .err_class = static_cast<spec::err_class>(injected.error_class),
                  .reason = "the descriptor was made to fail by the fault rule of this number",
                  .section = "SDXI 3.4",
                  .value = injected.fail},
                 execution.index);
  return Turn::kIdle;
}

/// Completion of a descriptor that a rule has been applied to. False: as complete().
bool Contexts::complete_by_rule(Context& context) {
  auto& execution = context.execution;
  const auto injected = execution.injected;
  execution.injected = {};
  const util::View<spec::dsc_generic> descriptor(execution.descriptor);
  if (injected.lost_interrupt != 0) parts_.faults.fired(injected.lost_interrupt);
  if (injected.lost_completion != 0) {
    parts_.faults.fired(injected.lost_completion);
    return true;
  }
  if (injected.bad_completion == 0) return complete(parts_.registers, context.space, descriptor);
  parts_.faults.fired(injected.bad_completion);
  complete_with_error(parts_.registers, context.space, descriptor);
  return true;
}

/// At the beginning of a stop: whether a rule keeps it from ending.
bool Contexts::hangs(Context& context, bool hard) {
  context.hang = parts_.faults.begin_stop(parts_.options.name, context.entry.number, hard);
  return context.hang != 0;
}

}  // namespace softhca::sdxi
