// The virtual clock of devices that run in turns. It moves only when nothing else can run, so a
// retry timer of seconds costs a test nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "util/clock.h"

namespace softhca::driver::test {

class Turns {
 public:
  /// `run(now)` runs all devices and delivers their frames. It returns when the next event is due.
  explicit Turns(std::function<util::Time(util::Time now)> run) : run_(std::move(run)) {}

  util::Time now() const { return now_; }

  /// Called by a waiting driver. Runs a turn. If nothing is left to do now, a little virtual time
  /// passes.
  void progress() {
    if (!pass()) now_ = std::min(next_, now_ + kIdleStep);
  }
  /// Runs turns and moves time from timer to timer until `done` returns true. False if a virtual
  /// minute was not enough.
  bool run_until(const std::function<bool()>& done) {
    const auto limit = now_ + std::chrono::minutes(1);
    while (!done()) {
      if (pass()) continue;
      if (done()) return true;
      if (next_ == util::kNever || now_ > limit) return false;
      now_ = next_;
    }
    return true;
  }
  /// Runs every event of the next `duration`.
  void advance(util::Duration duration) {
    const auto end = now_ + duration;
    while (pass() || next_ <= end) now_ = std::max(now_, next_);
    now_ = end;
  }

 private:
  /// Step of virtual time while a driver waits, so that its timeouts expire.
  static constexpr auto kIdleStep = std::chrono::microseconds(100);

  /// A turn. False if nothing is left to do now.
  bool pass() {
    next_ = run_(now_);
    return next_ <= now_;
  }

  std::function<util::Time(util::Time now)> run_;
  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
};

}  // namespace softhca::driver::test
