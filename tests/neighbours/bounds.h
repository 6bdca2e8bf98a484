// How long things may take, in this kind of build.
#pragma once

#include <chrono>
#include <cstdint>

namespace softhca::neighbours {

/// A sanitizer's run-time maps memory of its own, and all takes many times longer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// A build for work on softhca takes several times longer.
#if defined(__OPTIMIZE__)
inline constexpr bool kOptimized = true;
#else
inline constexpr bool kOptimized = false;
#endif

/// The counted work (util::WorkBudget) of a turn, which no other load of the machine changes.
/// Messages are cut at 100,000 units, about 0.1 ms, and so is the work of functions, but not inside
/// of a piece.
inline constexpr std::uint64_t kTurnMaxWork = 300'000;
/// The largest piece is a packet through three levels of keys of single bytes: 12,288 steps,
/// 860,160 units.
inline constexpr std::uint64_t kKeysMaxWork = 1'200'000;
/// Turns are to take 2 ms at most of the loop's own processor time. What a hypervisor takes from a
/// virtual machine, and interrupts, count as the time of whoever ran there: a quiet one showed none
/// to ten such turns of tens of thousands, two of 716 where turns were few, and a busy one up to
/// nine. So this finds kinds of work that are not counted and are always long; what is counted has
/// kTurnMaxWork. What each test has seen is printed.
inline constexpr std::uint64_t long_turns_max(std::uint64_t turns) {
  return kSanitized || !kOptimized ? turns : 30 + turns / 500;
}
/// For the same reason the longest of all finds only what is wrong by far.
inline constexpr std::uint64_t kTurnMaxNs = kSanitized ? 300'000'000 : 100'000'000;
/// A wait of both honest clients above this is the server's doing, whatever else the machine has to
/// do: one access by messages may take 100 ms of it.
inline constexpr std::chrono::milliseconds kWaitMax{kSanitized ? 2000 : 500};
/// A wait of one of them above this, too.
inline constexpr std::chrono::seconds kWaitLimit{5};

}  // namespace softhca::neighbours
