#include "rdma/scatter_gather.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pcie/absent_pages.h"

namespace softhca::rdma {
namespace {

/// Calls `visit(sge, address, n)` for each part of [offset, offset + length) within one SGE. Stops
/// at the first fault.
template <class Visit>
Reason for_each_part(std::span<const Sge> sges, std::uint64_t offset, std::uint64_t length,
                     Visit&& visit) {
  auto result = Reason::kNone;
  for (const auto& sge : sges) {
    if (length == 0) return result;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto n = std::min<std::uint64_t>(length, sge.length - offset);
    const auto fault = visit(sge, sge.address + offset, n);
    if (fault != Reason::kNone) {
      if (fault != Reason::kSignatureMismatch) return fault;
      result = fault;  // no abort: all bytes are copied in spite of it
    }
    length -= n;
    offset = 0;
  }
  return length == 0 ? result : Reason::kScatterListShort;
}

/// The same with `visit(key, address, n)`, after the check of the key. No SGE may be inline.
template <class Visit>
Reason for_each_part(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                     std::uint64_t offset, std::uint64_t length, std::uint8_t access,
                     Visit&& visit) {
  return for_each_part(sges, offset, length,
                       [&](const Sge& sge, std::uint64_t address, std::uint64_t n) {
                         const auto found = keys.check(sge.lkey, user, address, n, access);
                         return found ? visit(*found.key, address, n) : found.reason;
                       });
}

/// Some SGEs are inline: copies all of them.
Reason gather_mixed(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                    std::span<const std::byte> inline_data, std::uint64_t offset,
                    std::span<std::byte> out) {
  return for_each_part(sges, offset, out.size(),
                       [&](const Sge& sge, std::uint64_t address, std::uint64_t n) {
                         const auto to = out.first(n);
                         out = out.subspan(n);
                         if (sge.is_inline) {
                           std::ranges::copy(inline_data.subspan(address, n), to.begin());
                           return Reason::kNone;
                         }
                         const auto found = keys.check(sge.lkey, user, address, n, kLocalRead);
                         if (!found) return found.reason;
                         return keys.read(*found.key, address, to) ? Reason::kNone : keys.fault();
                       });
}

/// All or nothing: a packet that hits an absent page is sent again.
[[gnu::noinline]] Reason scatter_signed(KeyTable& keys, MemoryKey& key, std::uint64_t address,
                                        const wire::Frame& frame, std::size_t from,
                                        std::size_t length) {
  const auto before = key.signature()->progress;
  auto result = Reason::kNone;
  bool ok = true;
  frame.for_each_piece(from, length, [&](std::span<const std::byte> bytes) {
    if (!ok || keys.write(key, std::exchange(address, address + bytes.size()), bytes)) return;
    result = keys.fault();
    ok = result == Reason::kSignatureMismatch;
  });
  if (!ok) key.signature()->progress = before;
  return result;
}

}  // namespace

bool refer(KeyTable& keys, MemoryKey& key, std::uint64_t address, std::uint64_t length,
           wire::Frame& frame) {
  if (const auto* host = keys.one_piece(key, address, length, pcie::DmaAccess::kRead)) {
    return frame.add_segment({host, length});
  }
  if (key.is_signed()) return false;  // the bytes to send are in no memory
  bool fits = true;
  const auto add = [&](const MemoryPiece& piece) {
    fits = fits && piece.host != nullptr && frame.add_segment({piece.host, piece.size});
  };
  return keys.for_each_piece(key, address, length, pcie::DmaAccess::kRead, add) && fits;
}

std::uint64_t total_length(std::span<const Sge> sges) {
  std::uint64_t total = 0;
  for (const auto& sge : sges) total += sge.length;
  return total;
}

Reason check_all(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                 std::uint8_t access) {
  for (const auto& sge : sges) {
    if (sge.length == 0 || sge.is_inline) continue;
    const auto found = keys.check(sge.lkey, user, sge.address, sge.length, access);
    if (!found) return found.reason;
  }
  return Reason::kNone;
}

Reason gather(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
              std::span<const std::byte> inline_data, std::uint64_t offset, std::size_t length,
              wire::Frame& frame) {
  if (!inline_data.empty()) {
    return gather_mixed(keys, user, sges, inline_data, offset, frame.own_payload(length));
  }
  if (sges.size() == 1 && offset + length <= sges[0].length) {
    // The common case: a single SGE, no list to walk.
    const auto address = sges[0].address + offset;
    const auto found = keys.check(sges[0].lkey, user, address, length, kLocalRead);
    return found ? gather(keys, *found.key, address, length, frame) : found.reason;
  }
  bool by_reference = true;
  auto fault = for_each_part(keys, user, sges, offset, length, kLocalRead,
                             [&](MemoryKey& key, std::uint64_t address, std::uint64_t n) -> Reason {
                               by_reference = by_reference && refer(keys, key, address, n, frame);
                               return Reason::kNone;
                             });
  if (fault != Reason::kNone || by_reference) return fault;
  auto out = frame.own_payload(length);
  return for_each_part(keys, user, sges, offset, length, kLocalRead,
                       [&](MemoryKey& key, std::uint64_t address, std::uint64_t n) -> Reason {
                         const auto to = out.first(n);
                         out = out.subspan(n);
                         return keys.read(key, address, to) ? Reason::kNone : keys.fault();
                       });
}

bool refer(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
           std::size_t length, wire::Frame& frame) {
  return for_each_part(
             sges, offset, length, [&](const Sge& sge, std::uint64_t address, std::uint64_t n) {
               if (sge.is_inline) return Reason::kMemoryUnreachable;
               const auto found = keys.check(sge.lkey, user, address, n, kLocalRead);
               if (!found) return found.reason;
               return refer(keys, *found.key, address, n, frame) ? Reason::kNone
                                                                 : Reason::kMemoryUnreachable;
             }) == Reason::kNone;
}

Reason gather(KeyTable& keys, MemoryKey& key, std::uint64_t address, std::size_t length,
              wire::Frame& frame) {
  if (refer(keys, key, address, length, frame)) return Reason::kNone;
  return keys.read(key, address, frame.own_payload(length)) ? Reason::kNone : keys.fault();
}

Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               const wire::Frame& frame, std::size_t from, std::size_t length) {
  return for_each_part(keys, user, sges, offset, length, kLocalWrite,
                       [&](MemoryKey& key, std::uint64_t address, std::uint64_t n) -> Reason {
                         const auto at = std::exchange(from, from + n);
                         return scatter(keys, key, address, frame, at, n);
                       });
}

Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               std::span<const std::byte> bytes) {
  return for_each_part(keys, user, sges, offset, bytes.size(), kLocalWrite,
                       [&](MemoryKey& key, std::uint64_t address, std::uint64_t n) -> Reason {
                         const auto from = bytes.first(n);
                         bytes = bytes.subspan(n);
                         return keys.write(key, address, from) ? Reason::kNone : keys.fault();
                       });
}

Reason scatter(KeyTable& keys, MemoryKey& key, std::uint64_t address, const wire::Frame& frame,
               std::size_t from, std::size_t length) {
  if (auto* to = keys.one_piece(key, address, length, pcie::DmaAccess::kWrite)) {
    if (const auto* bytes = frame.one_piece(from, length)) {
      std::memmove(to, bytes, length);
      return Reason::kNone;
    }
    frame.for_each_piece(from, length, [&to](std::span<const std::byte> bytes) {
      // memmove: a QP may send to itself, from and to the same memory.
      std::memmove(to, bytes.data(), bytes.size());
      to += bytes.size();
    });
    return Reason::kNone;
  }
  if (key.is_signed()) return scatter_signed(keys, key, address, frame, from, length);
  bool ok = true;
  const auto put = [&](const MemoryPiece& piece) {
    auto* to = piece.host;
    auto iova = piece.iova;
    frame.for_each_piece(from, piece.size, [&](std::span<const std::byte> bytes) {
      if (to != nullptr) {
        std::memmove(to, bytes.data(), bytes.size());
        to += bytes.size();
      } else {
        ok = ok && keys.dma().write(iova, bytes);
        iova += bytes.size();
      }
    });
    from += piece.size;
  };
  const bool walked = keys.for_each_piece(key, address, length, pcie::DmaAccess::kWrite, put);
  if (walked && ok) return Reason::kNone;
  return !ok && pcie::AbsentPages::take() ? Reason::kPageNotBrought : keys.fault();
}

}  // namespace softhca::rdma
