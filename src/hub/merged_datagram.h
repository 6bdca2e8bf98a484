// A received message: one datagram, or several of one sender that the kernel has merged (UDP_GRO).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace softhca::hub {

class MergedDatagram {
 public:
  /// Shorter parts are no packets: BTH and ICRC are as long. The message then counts as one, so
  /// that a peer cannot make much work of few bytes.
  static constexpr std::size_t kPartMin = 16;

  /// `part`: bytes of each datagram except the last one, which may be shorter. 0: it is one
  /// datagram.
  MergedDatagram(std::span<const std::byte> bytes, std::size_t part)
      : rest_(bytes), part_(part < kPartMin ? bytes.size() : part) {}

  /// Datagrams, also if it is empty.
  std::size_t count() const {
    return rest_.size() <= part_ ? 1 : (rest_.size() + part_ - 1) / part_;
  }
  /// Takes the next of count() datagrams.
  std::span<const std::byte> take() {
    const auto size = std::min(part_, rest_.size());
    return std::exchange(rest_, rest_.subspan(size)).first(size);
  }

 private:
  std::span<const std::byte> rest_;
  std::size_t part_;
};

}  // namespace softhca::hub
