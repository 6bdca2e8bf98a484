// The input of a command. If it has a list of pages, it can be tens of megabytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "util/work_budget.h"

namespace softhca::connectx {

/// An append-only byte buffer. Bytes after the first kWhole are stored in pieces. release() frees
/// these one by one, because freeing tens of megabytes in one call takes milliseconds.
class CommandInput {
 public:
  /// The list of pages of the largest CQ. Only CREATE_MKEY has a longer list.
  static constexpr std::size_t kWhole = (1u << 20) + 4096;

  /// Starts an empty input, to which up to `size` bytes are appended. @pre release() has returned
  /// true
  void start(std::size_t size) {
    first_.clear();
    first_.reserve(std::min(size, kWhole));
    size_ = 0;
  }
  void append(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    const auto head = bytes.first(std::min(bytes.size(), kWhole - first_.size()));
    first_.insert(first_.end(), head.begin(), head.end());
    for (bytes = bytes.subspan(head.size()); !bytes.empty();) {
      const auto at = (size_ - bytes.size() - kWhole) % kPiece;
      if (at == 0) pieces_.push_back(std::make_unique_for_overwrite<Piece>());
      const auto part = bytes.first(std::min(bytes.size(), kPiece - at));
      std::ranges::copy(part, pieces_.back()->begin() + static_cast<std::ptrdiff_t>(at));
      bytes = bytes.subspan(part.size());
    }
  }
  /// Pads with zeros up to `size` bytes. An input longer than kWhole stays unchanged.
  void extend(std::size_t size) {
    if (size <= size_ || size > kWhole) return;
    first_.resize(size);
    size_ = size;
  }
  /// Frees the memory that is not kept for the next command, until `work` is spent. True if done.
  bool release(util::WorkBudget& work) {
    for (; !pieces_.empty(); pieces_.pop_back()) {
      if (work.spent()) return false;
      work.charge(kPieceWork);
    }
    if (first_.capacity() > kKept) {
      work.charge(static_cast<std::int64_t>(first_.capacity() / kBytesPerUnit));
      std::vector<std::byte>().swap(first_);
    }
    return true;
  }

  std::size_t size() const { return size_; }
  /// The whole input, or its first kWhole bytes if it is longer.
  std::span<const std::byte> whole() const { return first_; }
  /// The bytes from `offset` on that are contiguous in memory.
  std::span<const std::byte> at(std::size_t offset) const {
    if (offset >= size_) return {};
    if (offset < first_.size()) return std::span(first_).subspan(offset);
    const auto behind = offset - kWhole;
    const auto piece =
        std::span<const std::byte>(*pieces_[behind / kPiece]).subspan(behind % kPiece);
    return piece.first(std::min(piece.size(), size_ - offset));
  }

 private:
  static constexpr std::size_t kPiece = 64 << 10;
  static constexpr std::size_t kKept = 64 << 10;
  static constexpr std::int64_t kPieceWork = 6000;
  static constexpr std::size_t kBytesPerUnit = 64;
  using Piece = std::array<std::byte, kPiece>;

  std::size_t size_ = 0;
  std::vector<std::byte> first_;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace softhca::connectx
