// Bytes of which only some bits count, to be compared with others: 16 at once.
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
  /// What `bytes` say where `mask` has ones. @pre both have the same size, at most Size
  void set(std::span<const std::byte> bytes, std::span<const std::byte> mask) {
    mask_ = {};
    value_ = {};
    blocks_ = (bytes.size() + sizeof(Block) - 1) / sizeof(Block);
    if (bytes.empty()) return;
    std::memcpy(mask_.data(), mask.data(), mask.size());
    std::memcpy(value_.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i != blocks_; ++i) value_[i] &= mask_[i];
  }
  /// Whether those at `bytes` say the same. @pre there are as many as in set(), rounded up to 16
  bool match(const std::byte* bytes) const {
    Block differs{};
    for (std::size_t i = 0; i != blocks_; ++i) differs |= difference(bytes, i);
    return (differs[0] | differs[1]) == 0;
  }
  /// The same if set() was given Size bytes.
  bool match_all(const std::byte* bytes) const {
    Block differs{};
    for (std::size_t i = 0; i != kBlocks; ++i) differs |= difference(bytes, i);
    return (differs[0] | differs[1]) == 0;
  }
  /// 0 where bits do not count.
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
  std::size_t blocks_ = 0;  ///< that are compared
};

}  // namespace softhca::util
