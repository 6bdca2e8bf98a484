// Time limits for this kind of build.
#pragma once

#include <chrono>
#include <cstdint>

namespace softhca::neighbours {

/// A sanitizer's run-time maps memory of its own, and slows everything many times.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// A debug build is several times slower.
#if defined(__OPTIMIZE__)
inline constexpr bool kOptimized = true;
#else
inline constexpr bool kOptimized = false;
#endif

/// Counted work (util::WorkBudget) of a turn. Other load on the machine does not change it.
/// Receiving messages is cut off at 100,000 units, about 0.1 ms, and so is the work of functions,
/// but never within a piece.
inline constexpr std::uint64_t kTurnMaxWork = 300'000;
/// The largest pieces go through three levels of keys with pieces of one byte: an RDMA packet of
/// 4,096 bytes, 860,160 units, and what an RQ receives before it drops the frame, 1,115,040 units.
inline constexpr std::uint64_t kKeysMaxWork = 1'200'000;
/// Turns should take at most 2 ms of the loop's own processor time. Time that a hypervisor or
/// interrupts take counts for the thread that ran. A quiet machine showed up to ten such turns of
/// tens of thousands, or two of 716 where turns were few; a busy one up to nine. So this limit
/// finds only uncounted work that is always long. kTurnMaxWork covers counted work. Each test
/// prints what it measured.
inline constexpr std::uint64_t long_turns_max(std::uint64_t turns) {
  return kSanitized || !kOptimized ? turns : 30 + turns / 500;
}
/// For the same reason, the limit for the longest turn finds only gross faults.
inline constexpr std::uint64_t kTurnMaxNs = kSanitized ? 300'000'000 : 100'000'000;
/// If both honest clients wait longer than this, the server is at fault. Time in which a client or
/// the server waits for a processor does not count. One access by messages may account for 100 ms.
inline constexpr std::chrono::milliseconds kWaitMax{kSanitized ? 2000 : 500};
/// If even one of them waits longer than this, the server is at fault too.
inline constexpr std::chrono::seconds kWaitLimit{5};
/// How long a flood lasts: an honest client that waits for its end waits longer than kWaitMax.
inline constexpr std::chrono::milliseconds kFlood = kWaitMax + std::chrono::milliseconds(200);

}  // namespace softhca::neighbours
