// Checks that every fuzzer makes besides those of its own subject: the processor time of a turn,
// and memory that an input leaks.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOFTHCA_SANITIZED_HEAP
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOFTHCA_SANITIZED_HEAP
#endif
#ifdef SOFTHCA_SANITIZED_HEAP
#include <sanitizer/allocator_interface.h>
#endif

namespace softhca::fuzz {

/// Prints the place, because compilers merge the failing branches.
inline void check(bool holds, std::source_location place = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: does not hold\n", place.file_name(), unsigned{place.line()});
  std::abort();
}

/// Bytes allocated and not freed, by all threads. Only the sanitizers count exactly. 0 without
/// them.
inline std::size_t heap_in_use() {
#ifdef SOFTHCA_SANITIZED_HEAP
  return __sanitizer_get_current_allocated_bytes();
#else
  return 0;
#endif
}

/// Processor time of this thread.
inline std::chrono::nanoseconds processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// The largest costs so far, printed at the end of the program.
struct Costs {
  std::chrono::nanoseconds time{0};  ///< of a turn
  std::int64_t work = 0;             ///< counted by a turn

  ~Costs() {
    std::fprintf(stderr, "longest turn: %lld us of processor time; most work of one: %lld units\n",
                 static_cast<long long>(time.count() / 1000), static_cast<long long>(work));
  }
};
inline Costs costs;

/// A suspected fault of an input, by clock or heap: see run_input().
struct Suspicion {
  const char* what = nullptr;  ///< null: no suspicion
  long long amount = 0;
};
inline Suspicion suspicion;

/// One turn of an object that shares its thread with others, from here to the end of the block. A
/// turn should take about 200 us. The sanitizers make it ten times that.
class Turn {
 public:
  static constexpr std::chrono::milliseconds kTimeMax{50};

  Turn() = default;
  ~Turn() {
    const auto time = processor_time() - begin_;
    costs.time = std::max(costs.time, time);
    if (time <= kTimeMax) return;
    suspicion = {.what = "microseconds of processor time for one turn",
                 .amount = std::chrono::duration_cast<std::chrono::microseconds>(time).count()};
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const std::chrono::nanoseconds begin_ = processor_time();
};

/// Plays one input. A turn that takes too long, or memory leaked by the input, ends the program
/// only if many runs in a row show it. The first run fills one-time caches, a thread that ends
/// frees its memory a little later, and the machine may be slow for a moment.
template <class Play>
int run_input(Play play) {
  constexpr int kRuns = 16;
  for (int run = 1;; ++run) {
    suspicion = {};
    const auto before = heap_in_use();
    play();
    const auto after = heap_in_use();
    if (suspicion.what == nullptr && after > before) {
      suspicion = {.what = "bytes that are in use after the input",
                   .amount = static_cast<long long>(after - before)};
    }
    if (suspicion.what == nullptr) return 0;
    if (run < kRuns) continue;
    std::fprintf(stderr, "%lld %s\n", suspicion.amount, suspicion.what);
    std::abort();
  }
}

}  // namespace softhca::fuzz
