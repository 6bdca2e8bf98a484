// Numbers without an object behind them, with a count of their users: PDs, doorbell pages, domains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "hca/use.h"
#include "util/id_allocator.h"

namespace softhca::hca {

/// `Number` is a util::Strong.
template <class Number>
class NumberPool {
 public:
  /// Allocates from [first, first + count).
  NumberPool(std::uint32_t first, std::uint32_t count) : ids_(first, count) {}

  /// Nothing if all are in use.
  std::optional<Number> allocate() {
    const auto id = ids_.allocate();
    if (!id) return std::nullopt;
    while (*id >= entries_.size()) entries_.emplace_back();
    entries_[*id].allocated = true;
    ++count_;
    return Number(static_cast<typename Number::Value>(*id));
  }
  bool contains(Number number) const {
    return number.value() < entries_.size() && entries_[number.value()].allocated;
  }
  /// @pre contains(number)
  Use use(Number number) { return Use(entries_[number.value()].users); }
  /// @pre contains(number)
  bool is_used(Number number) const { return entries_[number.value()].users.any(); }
  /// @pre contains(number) and not is_used(number)
  void free(Number number) {
    assert(contains(number) && !is_used(number));
    entries_[number.value()].allocated = false;
    ids_.free(number.value());
    --count_;
  }
  /// Allocated numbers.
  std::size_t count() const { return count_; }

 private:
  struct Entry {
    Users users;
    bool allocated = false;
  };
  util::IdAllocator ids_;
  std::deque<Entry> entries_;  ///< by number; a deque, so that entries never move: each Use points
                               ///< to one
  std::size_t count_ = 0;
};

}  // namespace softhca::hca
