// The inline data of a send request.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "util/copy_short.h"

namespace softhca::rdma {

/// Short inline data, the common case, is stored in place. Memory for longer data is kept across
/// clear().
class InlineBytes {
 public:
  static constexpr std::size_t kShort = 28;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* data() const { return size_ <= kShort ? short_.data() : long_.data(); }
  operator std::span<const std::byte>() const { return {data(), size()}; }

  void clear() { size_ = 0; }
  void assign(std::span<const std::byte> bytes) {
    size_ = static_cast<std::uint32_t>(bytes.size());
    if (bytes.size() <= kShort) {
      util::copy_short(short_.data(), bytes.data(), bytes.size());
    } else {
      if (long_.size() < bytes.size()) long_.resize(bytes.size());
      std::memcpy(long_.data(), bytes.data(), bytes.size());
    }
  }
  void append(std::span<const std::byte> bytes) {
    if (empty()) return assign(bytes);
    if (size_ <= kShort) {
      long_.assign(short_.begin(), short_.begin() + size_);
    } else {
      long_.resize(size_);
    }
    long_.insert(long_.end(), bytes.begin(), bytes.end());
    size_ = static_cast<std::uint32_t>(long_.size());
    if (size_ <= kShort) std::ranges::copy(long_, short_.begin());
  }

 private:
  std::uint32_t size_ = 0;
  std::array<std::byte, kShort> short_{};  ///< all bytes, if at most kShort
  std::vector<std::byte> long_;            ///< all bytes otherwise; only the first size_ count
};

}  // namespace softhca::rdma
