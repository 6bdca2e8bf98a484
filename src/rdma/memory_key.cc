#include "rdma/memory_key.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace softhca::rdma {

MemoryKey::MemoryKey(Attributes attributes) : attributes_(std::move(attributes)) {
  build();
  update_plain();
}

void MemoryKey::build() {
  extents_.clear();
  indirect_ends_.clear();
  last_hit_ = 0;
  std::uint64_t offset = 0;
  for (const auto& sge : attributes_.indirect) {
    offset += sge.length;
    indirect_ends_.push_back(offset);
  }
  if (!attributes_.indirect.empty()) return;

  const auto page_size = std::uint64_t{1} << attributes_.log_page_size;
  auto skip = attributes_.page_offset.value_or(attributes_.start & (page_size - 1));
  offset = 0;
  for (std::size_t i = 0; i < attributes_.pages.size(); ++i) {
    if (skip >= page_size) {
      skip -= page_size;
      continue;
    }
    const auto iova = attributes_.pages[i] + skip;
    const auto size = page_size - skip;
    const std::uint8_t access = attributes_.page_access.empty() ? 0xFF : attributes_.page_access[i];
    skip = 0;
    if (!extents_.empty() && extents_.back().iova + extents_.back().size == iova &&
        extents_.back().access == access) {
      extents_.back().size += size;
    } else {
      extents_.push_back({offset, size, iova, access});
    }
    offset += size;
  }
}

std::size_t MemoryKey::search_extent(std::uint64_t offset) {
  const auto next = last_hit_ + 1;
  if (next < extents_.size() && offset - extents_[next].offset < extents_[next].size) {
    return last_hit_ = next;
  }
  const auto after =
      std::upper_bound(extents_.begin(), extents_.end(), offset,
                       [](std::uint64_t at, const Extent& e) { return at < e.offset; });
  const auto i = static_cast<std::size_t>(after - extents_.begin()) - 1;  // the first is at 0
  if (offset - extents_[i].offset >= extents_[i].size) return extents_.size();
  return last_hit_ = i;
}

bool MemoryKey::pages_grant(std::uint64_t offset, std::uint64_t length, std::uint8_t access) {
  const auto end = offset + length;
  for (auto i = length == 0 ? extents_.size() : find_extent(offset);
       i < extents_.size() && extents_[i].offset < end; ++i) {
    if ((extents_[i].access & access) != access) return false;
  }
  return true;
}

KeyTable::KeyTable(pcie::DmaSpace& dma, KeyShape shape, std::optional<MKey> reserved_lkey)
    : dma_(dma), shape_(shape) {
  if (!reserved_lkey) return;
  MemoryKey::Attributes attributes;
  attributes.key = *reserved_lkey;
  attributes.access = kLocalRead | kLocalWrite;
  attributes.whole_space = true;
  reserved_ = std::make_unique<MemoryKey>(std::move(attributes));
}

MemoryKey& KeyTable::insert(MemoryKey::Attributes attributes) {
  const auto index = shape_.index(attributes.key);
  if (index >= keys_.size()) keys_.resize(std::size_t{index} + 1);
  assert(keys_[index] == nullptr && "the device hands out each index once");
  keys_[index] = std::make_unique<MemoryKey>(std::move(attributes));
  return *keys_[index];
}

bool KeyTable::erase_index(std::uint32_t index) {
  if (find_index(index) == nullptr) return false;
  keys_[index] = nullptr;
  return true;
}

std::size_t KeyTable::size() const {
  return static_cast<std::size_t>(
      std::count_if(keys_.begin(), keys_.end(), [](const auto& key) { return key != nullptr; }));
}

KeyCheck KeyTable::check(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                         std::uint8_t access) {
  const auto refused = [](Reason reason) { return KeyCheck{nullptr, reason}; };
  auto* found = find(key);
  // Nearly every key asks for its PD, its rights and its range alone; whatever this does not allow
  // gets its reason below.
  if (found != nullptr && found->plain_) {
    const auto& a = found->attributes_;
    const auto offset = address - a.start;
    if (a.pd == user.pd && (a.access & access) == access && address >= a.start &&
        offset <= a.length && length <= a.length - offset) {
      return {found, Reason::kNone};
    }
  }
  if (found == nullptr) {
    if (reserved_ == nullptr || key != reserved_->key()) return refused(Reason::kKeyUnknown);
    if (!user.reserved_lkey) return refused(Reason::kReservedKeyForbidden);
    if (address + length < address) return refused(Reason::kKeyRange);
    // Never for remote rights, which the reserved key does not have.
    if ((reserved_->attributes_.access & access) != access) return refused(Reason::kKeyRights);
    return {reserved_.get(), Reason::kNone};
  }
  const auto& a = found->attributes_;
  if (a.free) return refused(Reason::kKeyInvalidated);
  if (a.pd != user.pd) return refused(Reason::kKeyOtherPd);
  if (a.only_qpn && *a.only_qpn != user.qpn) return refused(Reason::kKeyOtherQp);
  if ((a.access & access) != access) return refused(Reason::kKeyRights);
  if (a.whole_space) {
    if (address + length < address) return refused(Reason::kKeyRange);
  } else {
    const auto offset = address - a.start;
    if (address < a.start || offset > a.length || length > a.length - offset) {
      return refused(Reason::kKeyRange);
    }
  }
  if (!a.page_access.empty() && !found->pages_grant(address - found->base(), length, access)) {
    return refused(Reason::kKeyRights);
  }
  return {found, Reason::kNone};
}

bool KeyTable::read(MemoryKey& key, std::uint64_t address, std::span<std::byte> out) {
  bool ok = true;
  const auto take = [&](const MemoryPiece& piece) {
    if (piece.host != nullptr) {
      std::memcpy(out.data(), piece.host, piece.size);
    } else {
      ok = ok && dma_.read(piece.iova, out.first(piece.size));
    }
    out = out.subspan(piece.size);
  };
  return for_each_piece(key, address, out.size(), pcie::DmaAccess::kRead, take) && ok;
}

bool KeyTable::write(MemoryKey& key, std::uint64_t address, std::span<const std::byte> in) {
  bool ok = true;
  const auto put = [&](const MemoryPiece& piece) {
    if (piece.host != nullptr) {
      // The source may be the same memory: a QP may send to itself.
      std::memmove(piece.host, in.data(), piece.size);
    } else {
      ok = ok && dma_.write(piece.iova, in.first(piece.size));
    }
    in = in.subspan(piece.size);
  };
  return for_each_piece(key, address, in.size(), pcie::DmaAccess::kWrite, put) && ok;
}

}  // namespace softhca::rdma
