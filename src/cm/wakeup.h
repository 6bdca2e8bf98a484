// The time of the next tick().
#pragma once

#include <algorithm>

#include "util/clock.h"

namespace softhca::cm {

class Wakeup {
 public:
  void at(util::Time time) { next_ = std::min(next_, time); }
  /// Forgets all times. Each class sets those that it still waits for again.
  void clear() { next_ = util::kNever; }
  util::Time next() const { return next_; }

 private:
  util::Time next_ = util::kNever;
};

}  // namespace softhca::cm
