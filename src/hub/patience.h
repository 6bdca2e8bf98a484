// How long who sends waits for who does not take: a pause, as of IEEE 802.1Q clause 36, that no
// station can make last.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "util/clock.h"

namespace softhca::hub {

/// With one ring, or one file, that is full: since when nothing was taken out of it.
class Patience {
 public:
  static constexpr util::Duration kLongest = std::chrono::milliseconds(100);

  /// What `room`, the bytes that there is room for, means to who wants `enough`, where `taken` is
  /// what was taken so far. 0: wait. No limit: nothing was taken for so long that nobody waits.
  std::size_t room(std::size_t room, std::uint64_t taken, std::size_t enough) {
    if (room >= enough) return room;
    const auto now = util::monotonic_now();
    if (since_ == util::Time{} || taken != taken_) {
      since_ = now;
      taken_ = taken;
    }
    return now - since_ < kLongest ? 0 : SIZE_MAX;
  }

 private:
  util::Time since_{};
  std::uint64_t taken_ = 0;
};

}  // namespace softhca::hub
