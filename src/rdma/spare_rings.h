// A pool of rings that QPs acquire while they work. Very many QPs use them in turn, so each need
// not keep its own.
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

/// Rings of 2^n entries. As long as at most kKept are in use, QPs keep theirs while idle. Beyond
/// that, idle QPs release theirs to the pool, and the next QP takes it from there. Nothing is
/// allocated once the pool covers the peak use.
template <class Entry>
class SpareRings {
 public:
  struct Ring {
    std::unique_ptr<Entry[]> entries;  ///< contents are unspecified
    std::size_t size;
    util::Budget::Reservation share;  ///< memory share, held as long as the ring exists
    Ring* next = nullptr;             ///< next ring of the pool
  };

  /// Most rings in use at which idle QPs may keep theirs.
  static constexpr std::size_t kKept = 32;
  /// Most entries of all rings in the pool; rings beyond that are freed.
  static constexpr std::size_t kSpareMax = 4096;

  SpareRings() = default;
  SpareRings(const SpareRings&) = delete;
  SpareRings& operator=(const SpareRings&) = delete;
  ~SpareRings() {
    assert(in_use_ == 0 && "QPs go before what they have borrowed");
    clear();
  }

  /// True if more rings are in use than QPs may keep while idle.
  bool crowded() const { return in_use_ > kKept; }

  /// Takes a ring of `size` entries from the pool; null if it has none.
  Ring* take(std::size_t size) {
    auto*& first = first_[class_of(size)];
    auto* const ring = first;
    if (ring == nullptr) return nullptr;
    first = ring->next;
    spare_ -= size;
    ++in_use_;
    return ring;
  }
  /// Allocates a ring. @pre size is a power of two, at most kSpareMax
  Ring* make(std::size_t size) {
    auto made = std::make_unique<Ring>();
    made->entries = std::make_unique<Entry[]>(size);
    made->size = size;
    ++in_use_;
    return made.release();
  }
  /// Takes back a ring from take() or make(). False if the pool was full and the ring was freed.
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
  /// Frees all rings of the pool. Returns the number of their entries.
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

  std::array<Ring*, kClasses> first_{};  ///< lists of pooled rings, by log2 of their size
  std::size_t spare_ = 0;
  std::size_t in_use_ = 0;
};

}  // namespace softhca::rdma
