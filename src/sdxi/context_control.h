// What administrative operations do to the contexts of a function: its own, or, for a PF, a VF's
// (SDXI 6.6).
#pragma once

#include <cstdint>

#include "sdxi/context_tables.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// Who wants a context to stop (SDXI 4.3.5).
enum class StopCause : std::uint8_t {
  kLocal,     ///< LOC.DSC_CXT_STOP: ends in CXTV_STOP_SW
  kPfToVf,    ///< P2V.DSC_CXT_STOP: ends in CXTV_STOP_FN
  kFunction,  ///< Stop:Fn: ends in CXTV_STOP_FN
};

enum class StartKind : std::uint8_t { kNormal, kResume };

class ContextControl {
 public:
  virtual ~ContextControl() = default;

  virtual const Registers& registers() const = 0;
  virtual const ContextTables& tables() const = 0;

  /// One context of DSC_CXT_START_* (SDXI 6.6.3).
  virtual Checked<void> start(ContextNumber number, StartKind kind) = 0;
  /// One context's stop action, up to where it waits for outstanding descriptors (SDXI 4.3.5).
  virtual Checked<void> stop(ContextNumber number, StopCause cause, bool hard) = 0;
  /// The doorbells of contexts `first` to `last`, from inside (SDXI 4.3.3, 6.6.3).
  virtual void ring(ContextNumber first, ContextNumber last, std::uint64_t value) = 0;
  /// An update operation: what is held of contexts is read again (SDXI 4.3.1.1).
  virtual void update() = 0;
  /// True if a stop action on one of the contexts has not ended. The context that executes the
  /// DSC_SYNC, `asker`'s context 0, cannot wait for its own end.
  virtual bool stopping(ContextNumber first, ContextNumber last,
                        const ContextControl* asker) const = 0;
  /// A mark behind the doorbells received so far, and whether all before it are evaluated
  /// (SDXI 6.6.9).
  virtual std::uint64_t doorbells_received() const = 0;
  virtual bool doorbells_evaluated(std::uint64_t mark) const = 0;

  /// What a DSC_SYNC of this function waits for may have happened.
  virtual void look_again() = 0;

  /// LogErr:Cxt that stops no context of this function. The record names the refusal's context.
  virtual void log_unstopped(const Refusal& refusal) = 0;
};

}  // namespace softhca::sdxi
