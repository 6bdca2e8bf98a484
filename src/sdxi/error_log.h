// The error log (SDXI 3.4): records in a ring in memory, MMIO_ERR_*, message 0, and the same as
// text in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sdxi/memory.h"
#include "sdxi/own_interrupt.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"
#include "util/clock.h"
#include "util/log.h"

namespace softhca::sdxi {

struct ErrorReport {
  Refusal refusal;
  spec::err_reaction reaction;
  /// The context that stopped, or, if none did, the one that the report is about. If `refusal`
  /// names another context, that one goes into the vendor-defined part of the record (SDXI 3.4.1
  /// step 8).
  std::optional<ContextNumber> context{};
  std::optional<std::uint64_t> descriptor{};  ///< its index
};

class ErrorLog {
 public:
  ErrorLog(std::string name, Registers& registers, const FunctionMemory& memory,
           OwnInterrupt& own_interrupt)
      : name_(std::move(name)),
        registers_(registers),
        memory_(memory),
        own_interrupt_(own_interrupt) {}

  /// LogErr:Cxt and LogErr:Fn (SDXI 3.4): writes a record if logging is on, then sets
  /// MMIO_ERR_STS.sts and raises message 0 as MMIO_ERR_CTL says. The text is logged in any case.
  void record(const ErrorReport& report);

  /// Sets the time of the next log lines.
  void set_now(util::Time now) { now_ = now; }

  /// Reports since construction, written to memory or not.
  std::uint64_t reports() const { return reports_; }

 private:
  bool write_record(const ErrorReport& report);
  void say(const ErrorReport& report);

  std::string name_;
  Registers& registers_;
  const FunctionMemory& memory_;
  OwnInterrupt& own_interrupt_;
  util::RateLimiter limiter_{20, std::chrono::seconds(1)};
  util::Time now_{};
  std::uint64_t reports_ = 0;
};

}  // namespace softhca::sdxi
