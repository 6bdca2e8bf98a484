// Bytes under a mask, for fast comparison with others: 16 bytes at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace softhca::util {

template <std::size_t Size>
class MaskedBytes {
  using Block [[gnu::vector_size(16)]] = std::uint64_t;
  static_assert(Size % sizeof(Block) == 0);

 public:
  /// Stores the bits of `bytes` where `mask` has ones. @pre both have the same size, at most Size
  void set(std::span<const std::byte> bytes, std::span<const std::byte> mask) {
    mask_ = {};
    value_ = {};
    blocks_ = (bytes.size() + sizeof(Block) - 1) / sizeof(Block);
    if (bytes.empty()) return;
    std::memcpy(mask_.data(), mask.data(), mask.size());
    std::memcpy(value_.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i != blocks_; ++i) value_[i] &= mask_[i];
  }
  /// True if `bytes` has the same masked bits. @pre `bytes` has as many bytes as in set(), rounded
  /// up to 16
  bool match(const std::byte* bytes) const {
    Block differs{};
    for (std::size_t i = 0; i != blocks_; ++i) differs |= difference(bytes, i);
    return (differs[0] | differs[1]) == 0;
  }
  /// The same, if set() was given Size bytes.
  bool match_all(const std::byte* bytes) const {
    Block differs{};
    for (std::size_t i = 0; i != kBlocks; ++i) differs |= difference(bytes, i);
    return (differs[0] | differs[1]) == 0;
  }
  /// The stored bytes; bits outside the mask are 0.
  std::span<const std::byte> value() const { return std::as_bytes(std::span(value_)); }

 private:
  static constexpr std::size_t kBlocks = Size / sizeof(Block);
  using Blocks = std::array<Block, kBlocks>;

  Block difference(const std::byte* bytes, std::size_t i) const {
    Block block;
    std::memcpy(&block, bytes + i * sizeof block, sizeof block);
    return (block & mask_[i]) ^ value_[i];
  }

  Blocks mask_{};
  Blocks value_{};
  std::size_t blocks_ = 0;  ///< number of blocks to compare
};

}  // namespace softhca::util
