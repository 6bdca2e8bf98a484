#include "rdma/scatter_gather.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "pcie/absent_pages.h"
#include "wire/frame_reader.h"

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

std::span<std::byte> Gathering::room(std::size_t size) {
  if (!std::exchange(copies_, true)) rest_ = frame_.own_payload_so_far(length_);
  const auto next = rest_.first(size);
  rest_ = rest_.subspan(size);
  return next;
}

void Gathering::add(std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, room(bytes.size()).begin());
}

void Gathering::add(const MemoryPiece& piece) {
  if (piece.host != nullptr) {
    const std::span<const std::byte> bytes(piece.host, piece.size);
    if (copies_ || !frame_.add_segment(bytes)) add(bytes);
    return;
  }
  const auto to = room(piece.size);
  reachable_ = reachable_ && keys_.dma().read(piece.iova, to);
  keys_.work().charge(pcie::RemoteAccesses::take_work());
}

Reason Gathering::add(MemoryKey& key, std::uint64_t address, std::uint64_t length) {
  if (auto* host = keys_.one_piece(key, address, length, pcie::DmaAccess::kRead)) {
    add(MemoryPiece{host, 0, static_cast<std::size_t>(length)});
    return Reason::kNone;
  }
  if (key.is_signed()) {  // the bytes to send are in no memory
    return keys_.read(key, address, room(length)) ? Reason::kNone : keys_.fault();
  }
  const auto append = [this](const MemoryPiece& piece) { add(piece); };
  const bool walked = keys_.for_each_piece(key, address, length, pcie::DmaAccess::kRead, append);
  if (walked && reachable_) return Reason::kNone;
  return !reachable_ && pcie::AbsentPages::take() ? Reason::kPageNotBrought : keys_.fault();
}

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
  if (sges.size() == 1 && !sges[0].is_inline && offset + length <= sges[0].length) {
    // The common case: a single SGE, no list to walk.
    const auto address = sges[0].address + offset;
    const auto found = keys.check(sges[0].lkey, user, address, length, kLocalRead);
    return found ? gather(keys, *found.key, address, length, frame) : found.reason;
  }
  Gathering gathering(keys, length, frame);
  return for_each_part(sges, offset, length,
                       [&](const Sge& sge, std::uint64_t address, std::uint64_t n) -> Reason {
                         if (sge.is_inline) {
                           gathering.add(inline_data.subspan(address, n));
                           return Reason::kNone;
                         }
                         const auto found = keys.check(sge.lkey, user, address, n, kLocalRead);
                         return found ? gathering.add(*found.key, address, n) : found.reason;
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
  return Gathering(keys, length, frame).add(key, address, length);
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
  std::optional<wire::FrameReader> reader;
  const auto put = [&](const MemoryPiece& piece) {
    auto* to = piece.host;
    auto iova = piece.iova;
    const auto take = [&](std::span<const std::byte> bytes) {
      if (to != nullptr) {
        std::memmove(to, bytes.data(), bytes.size());
        to += bytes.size();
      } else if (!piece.dropped) {
        ok = ok && keys.dma().write(iova, bytes);
        iova += bytes.size();
      }
    };
    // Fast path: there is one piece.
    if (piece.size == length) return frame.for_each_piece(from, length, take);
    if (!reader) reader.emplace(frame, from);
    reader->read(piece.size, take);
  };
  const bool walked = keys.for_each_piece(key, address, length, pcie::DmaAccess::kWrite, put);
  if (pcie::RemoteAccesses::any()) keys.work().charge(pcie::RemoteAccesses::take_work());
  if (walked && ok) return Reason::kNone;
  return !ok && pcie::AbsentPages::take() ? Reason::kPageNotBrought : keys.fault();
}

}  // namespace softhca::rdma
