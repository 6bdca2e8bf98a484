// Accepts each sequence number once (RFC 6479).
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace softhca::trunk {

class ReplayWindow {
 public:
  /// Datagrams that another overtakes by at least this many are refused.
  static constexpr std::uint64_t kSize = 1024;

  bool is_new(std::uint64_t sequence) const {
    if (sequence > highest_) return true;
    return sequence != 0 && highest_ - sequence < kSize && !received_[sequence % kSize];
  }
  /// @pre is_new(sequence)
  void note(std::uint64_t sequence) {
    if (sequence > highest_) {
      const auto steps = sequence - highest_;
      if (steps >= kSize) {
        received_.reset();
      } else {
        for (auto at = highest_ + 1; at != sequence; ++at) received_.reset(at % kSize);
      }
      highest_ = sequence;
    }
    received_.set(sequence % kSize);
  }
  std::uint64_t highest() const { return highest_; }

 private:
  std::bitset<kSize> received_;
  std::uint64_t highest_ = 0;
};

}  // namespace softhca::trunk
