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

/// Without optimisation the same work takes five to ten times as long, with sanitizers three times
/// that.
#if defined(__OPTIMIZE__)
inline constexpr unsigned kSlowness = kSanitized ? 30 : 1;
#else
inline constexpr unsigned kSlowness = kSanitized ? 30 : 10;
#endif

/// What a turn of a server's loop may take of its own processor time.
inline constexpr std::uint64_t kTurnMaxNs = 2'000'000 * kSlowness;
/// The same where others keep the processors busy: caches are theirs then, too.
std::uint64_t turn_max_ns();
/// A wait above this is the server's doing, whatever else the machine has to do.
inline constexpr std::chrono::milliseconds kWaitMax{kSanitized ? 2000 : 200};

}  // namespace softhca::neighbours
