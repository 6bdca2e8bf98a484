// Limits what is under way to one hub: bytes that were sent and not acknowledged. The limit is well
// below the receive buffer of a socket by Linux's default. Nothing is sent again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hub/patience.h"
#include "util/time_source.h"

namespace softhca::trunk {

class Flight {
 public:
  /// Bytes under way above which stations wait.
  static constexpr std::uint64_t kWindow = std::uint64_t{192} << 10;
  /// Room for a share of frames of one process (hub.cc), which are judged before they are sent.
  static constexpr std::uint64_t kEnough = kWindow / 2;
  /// Above this, frames are dropped. It limits multicast, which never waits.
  static constexpr std::uint64_t kMost = 2 * kWindow;
  /// Each datagram counts as at least this: the kernel's memory for it is not proportional.
  static constexpr std::size_t kCostMin = 1024;
  /// If senders wait and no acknowledgement comes for so long, what is under way counts as lost.
  static constexpr util::Duration kLost = std::chrono::milliseconds(100);

  static std::uint64_t cost_of(std::size_t size) { return std::max(size, kCostMin); }

  void note_sent(std::uint64_t sequence, std::size_t size, util::Time now) {
    const bool was_blocked = is_blocked();
    total_ += cost_of(size);
    // Until now no acknowledgement was due: a receiver may hold it back for long.
    if (!was_blocked && is_blocked()) progress_ = now;
    totals_[sequence % totals_.size()] = total_;
    last_sent_ = sequence;
  }
  void note_acknowledged(std::uint64_t sequence, util::Time now) {
    if (sequence <= last_acknowledged_ || sequence > last_sent_) return;
    if (last_sent_ - sequence >= totals_.size()) return;
    last_acknowledged_ = sequence;
    acknowledged_ = std::max(acknowledged_, totals_[sequence % totals_.size()]);
    progress_ = now;
  }
  std::uint64_t bytes() const { return total_ - acknowledged_; }
  /// Whether a station must wait before it sends more.
  bool must_wait(const util::TimeSource& clock) {
    if (is_blocked()) give_up(clock());
    const auto room = kWindow - std::min(kWindow, bytes());
    return patience_.room(room, acknowledged_, kEnough, clock) == 0;
  }
  bool is_full(const util::TimeSource& clock) {
    if (bytes() >= kMost) give_up(clock());
    return bytes() >= kMost;
  }

 private:
  bool is_blocked() const { return kWindow - std::min(kWindow, bytes()) < kEnough; }
  void give_up(util::Time now) {
    if (now - progress_ < kLost) return;
    acknowledged_ = total_;
    last_acknowledged_ = last_sent_;
    progress_ = now;
  }

  /// Sum of costs up to each sequence number. kMost of the smallest cost are fewer.
  std::array<std::uint64_t, 1024> totals_{};
  std::uint64_t total_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t last_sent_ = 0;
  std::uint64_t last_acknowledged_ = 0;
  util::Time progress_{};  ///< when the window became blocked, or the last acknowledgement came
  hub::Patience patience_{hub::Patience::kLeast};
};

}  // namespace softhca::trunk
