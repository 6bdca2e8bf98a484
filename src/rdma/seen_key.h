// What the last access of a queue found: nearly all go to the same piece of memory behind the same
// key, which need not be looked for again.
#pragma once

#include <cstdint>

#include "rdma/memory_key.h"

namespace softhca::rdma {

/// Of one user, for one kind of access. Good until the key or a mapping of memory goes.
class SeenKey {
 public:
  /// Host address of [address, address + length) if `key` allows the access and all of it is one
  /// piece of local memory. Null: who asks KeyTable learns why. @pre `user()` and `access` are
  /// those of all calls, and who asks is only asked if the key is another
  template <class User>
  [[gnu::always_inline]] std::byte* find(KeyTable& keys, MKey key, User&& user,
                                         std::uint64_t address, std::uint64_t length,
                                         Access access) {
    if (key == key_ && keys_generation_ == keys.generation() &&
        dma_generation_ == keys.dma().generation() && found_->is_plain()) {
      const auto offset = address - start_;
      if (offset < size_ && length <= size_ - offset) return host_ + offset;
    }
    return find_anew(keys, key, user(), address, length, access);
  }

 private:
  [[gnu::noinline]] std::byte* find_anew(KeyTable& keys, MKey key, const KeyUser& user,
                                         std::uint64_t address, std::uint64_t length,
                                         Access access);

  MKey key_;
  std::uint64_t keys_generation_ = 0;  ///< no table has this one
  std::uint64_t dma_generation_ = 0;
  const MemoryKey* found_ = nullptr;
  std::uint64_t start_ = 0;  ///< address of host_
  std::uint64_t size_ = 0;   ///< bytes
  std::byte* host_ = nullptr;
};

}  // namespace softhca::rdma
