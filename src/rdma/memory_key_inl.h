// The walk over a memory key's pieces; part of memory_key.h.
#pragma once

#include <algorithm>
#include <array>

#include "rdma/memory_key.h"

namespace softhca::rdma {

template <class Visit>
bool KeyTable::walk_bus(pcie::Iova iova, std::uint64_t length, pcie::DmaAccess access,
                        Visit& visit) {
  while (length != 0) {
    const auto local = dma_.translate_prefix(iova, length, access);
    if (local.empty()) {
      // Memory of a peer, or none at all: DmaSpace::read or write finds out.
      visit(MemoryPiece{nullptr, iova, static_cast<std::size_t>(length)});
      return true;
    }
    visit(MemoryPiece{local.data(), iova, local.size()});
    iova += local.size();
    length -= local.size();
  }
  return true;
}

template <class Visit>
bool KeyTable::walk(MemoryKey& key, std::uint64_t offset, std::uint64_t length,
                    pcie::DmaAccess access, Visit& visit, unsigned depth) {
  if (length == 0) return true;
  if (key.form() == KeyForm::kPieces) {
    return walk_indirect(key, offset, length, access, visit, depth);
  }
  if (key.form() == KeyForm::kBus) {
    return walk_bus(key.base() + offset, length, access, visit);
  }
  if (key.form() == KeyForm::kNothing) return walk_nothing(length, access, visit);
  while (key.seek(offset)) {
    const auto extent = key.last_extent_;
    const auto skip = offset - extent.offset;
    const auto n = std::min(length, extent.size - skip);
    if (!walk_bus(extent.iova + skip, n, access, visit)) return false;
    offset += n;
    length -= n;
    if (length == 0) return true;
  }
  return false;  // the key is longer than its pages
}

template <class Visit>
bool KeyTable::walk_nothing(std::uint64_t length, pcie::DmaAccess access, Visit& visit) {
  if (access == pcie::DmaAccess::kWrite) {
    visit(MemoryPiece{nullptr, 0, static_cast<std::size_t>(length), true});
    return true;
  }
  if (access != pcie::DmaAccess::kRead) return false;
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (length != 0) {
    const auto n = std::min<std::uint64_t>(length, kZeros.size());
    // Read access never writes through this pointer.
    visit(MemoryPiece{const_cast<std::byte*>(kZeros.data()), 0, n});
    length -= n;
  }
  return true;
}

template <class Visit>
bool KeyTable::walk_indirect(MemoryKey& key, std::uint64_t offset, std::uint64_t length,
                             pcie::DmaAccess access, Visit& visit, unsigned depth) {
  if (depth == kIndirectDepthMax) return false;
  const auto pieces = key.pieces();
  const auto turns = key.pattern_.turns;
  std::uint64_t turn = 0;
  if (turns != 0) {
    turn = offset / key.turn_length();
    offset %= key.turn_length();
  }
  for (auto i = key.find_piece(offset); length != 0; ++i) {
    if (i >= pieces) {
      i = 0;
      offset = 0;
      ++turn;
    }
    if (pieces == 0 || turn > (turns == 0 ? 0 : turns - 1)) {
      fault_ = Reason::kKeyRange;
      return false;
    }
    work_.charge(kPieceWork);
    const auto [sge, piece_begin] = key.piece(i);
    if (sge.lkey == null_key_) {
      fault_ = Reason::kPageAbsent;
      return false;
    }
    const auto skip = offset - piece_begin;
    const auto n = std::min<std::uint64_t>(length, sge.length - skip);
    const auto begin = sge.address + (turns == 0 ? 0 : turn * key.pattern_.strides[i]);
    const auto rights = access == pcie::DmaAccess::kRead ? kLocalRead : kLocalWrite;
    const KeyUser user{key.attributes_.pd, Qpn{}, key.reserved_pieces_};
    const auto found = check(sge.lkey, user, begin + skip, n, rights);
    if (!found) {
      fault_ = found.reason;
      return false;
    }
    if (!walk(*found.key, begin + skip - found.key->base(), n, access, visit, depth + 1)) {
      return false;
    }
    offset += n;
    length -= n;
  }
  return true;
}

}  // namespace softhca::rdma
