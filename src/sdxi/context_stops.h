// Context stop actions (SDXI 4.3.5), begun by DSC_CXT_STOP, by an error, or by a function stop.
#pragma once

#include <cstdint>
#include <optional>

#include "sdxi/completion.h"
#include "sdxi/context_queue.h"
#include "sdxi/context_set.h"
#include "sdxi/error_log.h"
#include "sdxi/scheduler.h"

namespace softhca::sdxi {

/// HaltErr:Fn (SDXI 3.4).
class FunctionHalt {
 public:
  virtual ~FunctionHalt() = default;
  virtual void halt(const Refusal& refusal, std::optional<ContextNumber> context) = 0;
};

Refusal state_not_written(ContextNumber number, Iova at);

class ContextStops {
 public:
  struct Parts {
    const DeviceOptions& options;
    const FunctionMemory& memory;
    const ContextTables& tables;
    const Completions& completions;
    ContextSet& contexts;
    Scheduler& scheduler;
    ErrorLog& log;
    Faults& faults;
    FunctionHalt& halt;
    Gate& gate;
  };

  explicit ContextStops(const Parts& parts) : parts_(parts) {}

  /// Steps K1 to K9 for one context; K10 to K12 follow when its outstanding descriptor has ended.
  Checked<void> stop(ContextNumber number, StopCause cause, bool hard);
  /// K10 to K12: ends the stop of a context that is at a descriptor boundary.
  void finish(Context& context);
  /// StopErr:Cxt; writes the error log record before the state (SDXI 3.4).
  void stop_for_error(Context& context, const Refusal& refusal,
                      std::optional<std::uint64_t> descriptor);
  /// Ends the outstanding descriptor in an error (SDXI 4.3.5), and the stop with it. No effect
  /// while the context's operation is being called.
  void abort(Context& context);
  /// Ends a context that software made invalid, or whose state it changed, while it ran. Its
  /// outstanding descriptor completes with an error and is logged; CXT_STS stays as it is.
  void abandon(Context& context);
  /// Ends the context without writing to memory.
  void drop(Context& context);
  void drop_all();

  /// Aborts contexts whose soft stop has timed out, a bounded number in each call. Returns the
  /// budget used.
  std::int64_t look_at_deadlines(util::Time now);

  /// True if any context is stopping.
  bool any() const { return !stopping_.empty(); }
  /// True if a context of the range is stopping; context 0 is not counted if `except_admin`.
  /// Charges `budget` for each context that it checks.
  bool any_in(ContextNumber first, ContextNumber last, bool except_admin,
              std::int64_t& budget) const;
  /// Changes whenever a stop ends.
  std::uint64_t ended() const { return ended_; }
  std::uint64_t errors() const { return errors_; }

  // SDXI 6.6.4: a DSC_CXT_STOP by which context 0 stops itself begins after its own completion.
  /// Called before `context`'s operation is called. The first call for a descriptor clears an
  /// earlier request of the context to stop itself.
  void operation_begins(const Context& context, bool first_call);
  void operation_ends() { executing_ = nullptr; }
  bool is_executing(const Context& context) const { return &context == executing_; }
  /// Called after the context's descriptor has completed: begins the stop that it requested.
  void operation_completed(const Context& context);

 private:
  void stop_unsignaled(const ContextEntry& entry, StopCause cause);
  Context* hold(const ContextEntry& entry);
  void mark(Context& context, StopCause cause, bool hard);
  void make_hard(Context& context);
  void fail_outstanding(Context& context);
  void halt(const ContextEntry& entry, const Refusal& refusal);

  Parts parts_;
  StopList stopping_;
  Context* untimed_ = nullptr;  ///< from here on they have no deadline yet
  std::uint64_t ended_ = 0;
  std::uint64_t errors_ = 0;
  const Context* executing_ = nullptr;  ///< whose operation is being called
  struct SelfStop {
    StopCause cause;
    bool hard;
  };
  std::optional<SelfStop> self_stop_;
};

}  // namespace softhca::sdxi
