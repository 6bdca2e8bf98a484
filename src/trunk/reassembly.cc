#include "trunk/reassembly.h"

#include <algorithm>

namespace softhca::trunk {

Reassembly::Slot& Reassembly::slot_of(const Piece& piece) {
  auto at = std::ranges::find_if(slots_, [&](const Slot& slot) {
    return slot.used && slot.frame == piece.frame && slot.bytes.size() == piece.total;
  });
  if (at != slots_.end()) return *at;
  at = std::ranges::min_element(
      slots_, {}, [](const Slot& slot) { return slot.used ? slot.began : std::uint64_t{0}; });
  lost_ += at->used ? 1 : 0;
  at->used = true;
  at->frame = piece.frame;
  at->received = 0;
  at->began = ++begun_;
  at->bytes.assign(piece.total, std::byte{0});
  return *at;
}

std::span<const std::byte> Reassembly::add(const Piece& piece) {
  if (piece.total > kFrameMax || piece.bytes.empty()) return {};
  auto& slot = slot_of(piece);
  std::ranges::copy(piece.bytes, slot.bytes.begin() + static_cast<std::ptrdiff_t>(piece.offset));
  slot.received += piece.bytes.size();
  if (slot.received < slot.bytes.size()) return {};
  slot.used = false;
  return slot.bytes;
}

}  // namespace softhca::trunk
