// Memory that QPs have while they are at work, and lend each other: what very many of them use in
// turn is not kept by each.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "util/budget.h"

namespace softhca::rdma {

/// Rings of a power of two of `Entry`. A few QPs keep theirs as long as they like, and so have them
/// at hand. When more have one, those that have nothing to do give theirs back, and the next that
/// needs one gets it from here: nothing is allocated once there are as many as are in use at the
/// same time.
template <class Entry>
class SpareRings {
 public:
  struct Ring {
    std::unique_ptr<Entry[]> entries;  ///< which may hold anything
    std::size_t size;
    util::Budget::Reservation share;  ///< for as long as there is this ring
    Ring* next = nullptr;             ///< of the spare ones
  };

  /// Rings of QPs that may keep them.
  static constexpr std::size_t kKept = 32;
  /// Entries of all spare rings together; what would be more is freed.
  static constexpr std::size_t kSpareMax = 4096;

  SpareRings() = default;
  SpareRings(const SpareRings&) = delete;
  SpareRings& operator=(const SpareRings&) = delete;
  ~SpareRings() {
    assert(in_use_ == 0 && "QPs go before what they have borrowed");
    clear();
  }

  /// More rings are in use than may be kept.
  bool crowded() const { return in_use_ > kKept; }

  /// A spare ring of `size` entries, null if there is none.
  Ring* take(std::size_t size) {
    auto*& first = first_[class_of(size)];
    auto* const ring = first;
    if (ring == nullptr) return nullptr;
    first = ring->next;
    spare_ -= size;
    ++in_use_;
    return ring;
  }
  /// A new one. @pre size is a power of two, at most kSpareMax
  Ring* make(std::size_t size) {
    auto made = std::make_unique<Ring>();
    made->entries = std::make_unique<Entry[]>(size);
    made->size = size;
    ++in_use_;
    return made.release();
  }
  /// Takes back what take() or make() gave. False: there were enough, and it is freed.
  bool give(Ring* ring) {
    assert(in_use_ != 0);
    --in_use_;
    if (spare_ + ring->size > kSpareMax) {
      delete ring;
      return false;
    }
    auto*& first = first_[class_of(ring->size)];
    ring->next = first;
    first = ring;
    spare_ += ring->size;
    return true;
  }
  /// Frees the spare ones. Returns how many entries they had.
  std::size_t clear() {
    for (auto*& first : first_) {
      while (first != nullptr) delete std::exchange(first, first->next);
    }
    return std::exchange(spare_, 0);
  }

 private:
  static constexpr std::size_t kClasses = std::bit_width(kSpareMax);
  static std::size_t class_of(std::size_t size) {
    assert(size != 0 && size <= kSpareMax && (size & (size - 1)) == 0);
    return static_cast<std::size_t>(std::countr_zero(size));
  }

  std::array<Ring*, kClasses> first_{};  ///< spare ones, by the logarithm of their size
  std::size_t spare_ = 0;
  std::size_t in_use_ = 0;
};

}  // namespace softhca::rdma
