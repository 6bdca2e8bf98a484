// Waiting for another thread that is about to do something.
#pragma once

#include <thread>

namespace softhca::sdxi {

/// About ten microseconds.
inline constexpr unsigned kSpins = 256;

/// Hints to the processor that this is a spin-wait loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits before look number `tries`: spins at first, then yields the processor.
inline void spin_or_yield(unsigned tries) {
  if (tries < kSpins) {
    relax();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace softhca::sdxi
