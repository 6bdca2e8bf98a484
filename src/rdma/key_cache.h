// A queue's cached translation. Nearly all accesses of a queue go to the same piece of memory
// behind the same key, so the last lookup usually serves the next.
#pragma once

#include <cstdint>

#include "rdma/memory_key.h"

namespace softhca::rdma {

/// For one user and one kind of access. Valid until the key or a DMA mapping goes away.
class KeyCache {
 public:
  /// Host address of [address, address + length) if `key` allows the access and all of it is one
  /// piece of local memory. Null on any failure; KeyTable::check() gives the reason. `user()` is
  /// called on a miss only. @pre all calls pass the same user and `access`
  template <class User>
  [[gnu::always_inline]] std::byte* find(KeyTable& keys, MKey key, User&& user,
                                         std::uint64_t address, std::uint64_t length,
                                         Access access) {
    if (key == key_ && keys_generation_ == keys.generation() &&
        dma_generation_ == keys.dma().generation() && found_->is_plain()) {
      const auto offset = address - start_;
      if (offset < size_ && length <= size_ - offset) return host_ + offset;
    }
    return find_slow(keys, key, user(), address, length, access);
  }

 private:
  [[gnu::noinline]] std::byte* find_slow(KeyTable& keys, MKey key, const KeyUser& user,
                                         std::uint64_t address, std::uint64_t length,
                                         Access access);

  MKey key_;
  std::uint64_t keys_generation_ = 0;  ///< no table has generation 0
  std::uint64_t dma_generation_ = 0;
  const MemoryKey* found_ = nullptr;
  std::uint64_t start_ = 0;  ///< address of host_
  std::uint64_t size_ = 0;   ///< bytes
  std::byte* host_ = nullptr;
};

}  // namespace softhca::rdma
