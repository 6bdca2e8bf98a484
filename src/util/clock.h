// Time is a value that callers pass in. Engines never read a clock: real loops pass the monotonic
// clock, tests and simulations a virtual one.
#pragma once

#include <chrono>

namespace softhca::util {

/// The tag of softhca's time points. It has no now(): see MonotonicClock.
struct EngineClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<EngineClock>;
};

using Duration = EngineClock::duration;
using Time = EngineClock::time_point;

/// "Not before something else happens."
inline constexpr Time kNever = Time::max();

/// The host's monotonic clock, for the loops that own engines.
inline Time monotonic_now() {
  return Time(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace softhca::util
