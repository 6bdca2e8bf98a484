// How long a sender waits for a receiver that does not drain its ring: like PAUSE (IEEE 802.1Q
// clause 36), but bounded, whatever the receiver does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "util/time_source.h"

namespace softhca::hub {

/// For one full ring or file: for each `least` bytes that the receiver takes, a sender waits at
/// most kLongest in total, however the receiver spreads them.
class Patience {
 public:
  static constexpr util::Duration kLongest = std::chrono::milliseconds(100);

  /// Equals 1.3 MB/s: any program that runs now and then drains faster.
  static constexpr std::uint64_t kLeast = std::uint64_t{128} << 10;

  explicit Patience(std::uint64_t least) : least_(least) {}

  /// Bytes that a sender may send when the receiver has room for `room` bytes. The sender wants at
  /// least `enough`; the receiver has taken `taken` bytes so far. 0: wait. SIZE_MAX: the receiver
  /// is too slow to wait for.
  std::size_t room(std::size_t room, std::uint64_t taken, std::size_t enough,
                   const util::TimeSource& clock) {
    if (room >= enough && !waits_) return room;
    const auto now = clock();
    if (taken - taken_ >= least_) {
      taken_ = taken;
      waited_ = {};
    } else if (waits_) {
      waited_ += now - last_;
    }
    waits_ = room < enough;
    last_ = now;
    if (!waits_) return room;
    return waited_ < kLongest ? 0 : SIZE_MAX;
  }

 private:
  const std::uint64_t least_;
  std::uint64_t taken_ = 0;  ///< `taken` when `waited_` was last reset
  util::Duration waited_{};  ///< total wait since then
  util::Time last_{};        ///< time of the last call, if it returned 0
  bool waits_ = false;
};

}  // namespace softhca::hub
