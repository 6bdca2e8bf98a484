// Allocates small numbers: QPNs, PDs, MKey indexes, UARs.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>

namespace softhca::util {

/// Allocates numbers from [first, first + count). A freed number is not reused until `kRest` others
/// were freed after it, unless no other is left. So a stale number does not soon match a new
/// object. The numbers stay dense nevertheless.
class IdAllocator {
 public:
  static constexpr std::size_t kRest = 256;

  IdAllocator(std::uint32_t first, std::uint32_t count) : next_(first), end_(first + count) {}

  /// Nothing if all are in use.
  std::optional<std::uint32_t> allocate() {
    if (freed_.size() <= kRest && next_ != end_) return next_++;
    if (freed_.empty()) return std::nullopt;
    const auto id = freed_.front();
    freed_.pop();
    return id;
  }
  /// One more than the highest number of the range.
  std::uint32_t end() const { return end_; }
  /// @pre `id` came from allocate() and was not freed since.
  void free(std::uint32_t id) { freed_.push(id); }

 private:
  std::uint32_t next_;
  std::uint32_t end_;
  std::queue<std::uint32_t> freed_;
};

}  // namespace softhca::util
