// How a test waits for another thread or process where nothing says when: it looks.
#pragma once

#include <chrono>
#include <thread>

#include "util/clock.h"

namespace softhca {

/// Looks until `look()` is true. A minute without that is a failure: false.
template <class Look>
bool eventually(Look look) {
  const auto end = util::monotonic_now() + std::chrono::minutes(1);
  while (!look()) {
    if (util::monotonic_now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace softhca
