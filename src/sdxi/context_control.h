// Interface by which administrative operations act on contexts (SDXI 6.6): on those of their own
// function or, from a PF, on those of a VF.
#pragma once

#include <cstdint>

#include "sdxi/context_tables.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// Why a context stops (SDXI 4.3.5).
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
  /// Begins the stop action of one context, up to its wait for outstanding descriptors (SDXI
  /// 4.3.5).
  virtual Checked<void> stop(ContextNumber number, StopCause cause, bool hard) = 0;
  /// Rings the doorbells of contexts `first` to `last` internally (SDXI 4.3.3, 6.6.3).
  virtual void ring(ContextNumber first, ContextNumber last, std::uint64_t value) = 0;
  /// An update operation: cached context entries are read again (SDXI 4.3.1.1).
  virtual void update() = 0;
  /// True if a context of the range has a stop action that has not ended. Context 0 of `asker`,
  /// which executes the DSC_SYNC, is not counted: it cannot wait for its own end.
  /// Charges `budget` for each context that it checks.
  virtual bool stopping(ContextNumber first, ContextNumber last, const ContextControl* asker,
                        std::int64_t& budget) const = 0;
  /// doorbells_received() returns a mark behind the doorbells received so far;
  /// doorbells_evaluated() is true once all doorbells before `mark` have been evaluated (SDXI
  /// 6.6.9).
  virtual std::uint64_t doorbells_received() const = 0;
  virtual bool doorbells_evaluated(std::uint64_t mark) const = 0;

  /// Retries this function's waiting DSC_SYNC: its condition may hold now.
  virtual void look_again() = 0;

  /// LogErr:Cxt for an error that stops no context of this function. The record names the refusal's
  /// context.
  virtual void log_unstopped(const Refusal& refusal) = 0;
};

}  // namespace softhca::sdxi
