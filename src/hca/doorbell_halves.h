// Doorbells of two dwords that software writes one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace softhca::hca {

/// The first dwords, by doorbell page. Each waits for the second one on its page.
class DoorbellHalves {
 public:
  explicit DoorbellHalves(std::size_t pages) : first_(pages) {}

  /// Replaces a first dword that waits.
  void put(std::size_t page, std::uint32_t dword) { first_[page] = dword; }
  /// The second dword has arrived: returns the first one, and forgets it. Nothing if there is none.
  std::optional<std::uint32_t> take(std::size_t page) {
    return std::exchange(first_[page], std::nullopt);
  }
  /// A whole doorbell has arrived.
  void drop(std::size_t page) { first_[page].reset(); }
  void clear() { std::ranges::fill(first_, std::nullopt); }

 private:
  std::vector<std::optional<std::uint32_t>> first_;
};

}  // namespace softhca::hca
