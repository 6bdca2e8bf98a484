// Stop:Fn (SDXI 4.3.5): a stop action on every context of the function, a few in each run().
#pragma once

#include <cstdint>
#include <optional>

#include "sdxi/context_stops.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

class FunctionStop {
 public:
  struct Parts {
    const Registers& registers;
    ContextSet& contexts;
    ContextStops& stops;
  };

  explicit FunctionStop(const Parts& parts) : parts_(parts) {}

  /// A hard stop after a soft one starts over with the first context.
  void begin(bool hard) { progress_ = Progress{.hard = hard || (progress_ && progress_->hard)}; }
  void reset() { progress_.reset(); }
  /// Visits a bounded number of further contexts. Returns their cost (budget.h).
  std::int64_t go_on();
  /// True if go_on() has contexts left to visit.
  bool has_visits() const { return progress_ && progress_->next < parts_.contexts.size(); }
  /// True if all contexts have reached their final state.
  bool is_complete() const { return !has_visits() && !parts_.stops.any(); }

 private:
  struct Progress {
    bool hard = false;
    std::uint32_t next = 0;  ///< context to visit
  };

  Parts parts_;
  std::optional<Progress> progress_;
};

}  // namespace softhca::sdxi
