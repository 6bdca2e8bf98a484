// Waiting for another thread that is about to do something.
#pragma once

#include <thread>

namespace softhca::sdxi {

/// About ten microseconds.
inline constexpr unsigned kSpins = 256;

/// Tells the processor that this is a loop that waits.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// The nth look: at first at once, then others on this processor may go first.
inline void spin_or_yield(unsigned tries) {
  if (tries < kSpins) {
    relax();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace softhca::sdxi
