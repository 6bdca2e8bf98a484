#include "rdma/key_cache.h"

namespace softhca::rdma {

std::byte* KeyCache::find_slow(KeyTable& keys, MKey key, const KeyUser& user, std::uint64_t address,
                               std::uint64_t length, Access access) {
  const auto checked = keys.check(key, user, address, length, access);
  if (!checked) return nullptr;
  const auto rights = access == kLocalRead ? pcie::DmaAccess::kRead : pcie::DmaAccess::kWrite;
  auto* const host = keys.one_piece(*checked.key, address, length, rights);
  if (host == nullptr) return nullptr;
  const auto window = keys.window(*checked.key);
  key_ = key;
  keys_generation_ = keys.generation();
  dma_generation_ = keys.dma().generation();
  found_ = checked.key;
  start_ = window.start;
  size_ = window.size;
  host_ = window.host;
  return host;
}

}  // namespace softhca::rdma
