// Finds a queue pair by the user index that its completions carry.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

#include "util/id_allocator.h"

namespace softhca::driver::connectx {

class QueuePair;

class QueuePairTable {
 public:
  /// User indexes have 24 bits; the one with all bits set means "none" to the device.
  static constexpr std::uint32_t kMax = 0xffffff;

  /// A number for `qp`; nothing if all are in use.
  std::optional<std::uint32_t> insert(QueuePair& qp) {
    const auto index = ids_.allocate();
    if (!index) return std::nullopt;
    if (*index >= queue_pairs_.size()) queue_pairs_.resize(*index + 1);
    queue_pairs_[*index] = &qp;
    return index;
  }
  void erase(std::uint32_t index) {
    assert(find(index) != nullptr);
    queue_pairs_[index] = nullptr;
    ids_.free(index);
  }
  /// Null if there is none.
  QueuePair* find(std::uint32_t index) const {
    return index < queue_pairs_.size() ? queue_pairs_[index] : nullptr;
  }

 private:
  util::IdAllocator ids_{0, kMax};
  std::vector<QueuePair*> queue_pairs_;
};

}  // namespace softhca::driver::connectx
