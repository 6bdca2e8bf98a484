#include "rdma/atomic_operation.h"

#include <array>
#include <span>

namespace softhca::rdma {

using wire::Operation;

AtomicOperation::AtomicOperation(const wire::IbPacket& packet, const wire::Frame& frame)
    : add_(packet.info().operation == Operation::kFetchAdd ||
           packet.info().operation == Operation::kMaskedFetchAdd),
      masked_(packet.info().operation == Operation::kMaskedCompareSwap ||
              packet.info().operation == Operation::kMaskedFetchAdd),
      swap_add_(packet.ext.atomic.swap_add),
      compare_(packet.ext.atomic.compare) {
  if (!masked_) return;
  std::array<std::byte, wire::MaskedAtomicLayout::kSize> bytes;
  frame.copy_range(packet.payload_offset, bytes);
  masks_ = wire::MaskedAtomic::parse(util::View<wire::MaskedAtomicLayout>(bytes));
}

/// The new value for old value `before`.
template <class Word>
Word AtomicOperation::after(Word before) const {
  const auto operand = static_cast<Word>(swap_add_);
  if (add_) {
    // Add within each field; the mask marks the top bits, whose carries are dropped.
    const auto high = static_cast<Word>(compare_);
    const auto low = static_cast<Word>(~high);
    return static_cast<Word>(((before & low) + (operand & low)) ^ ((before ^ operand) & high));
  }
  if (((before ^ static_cast<Word>(compare_)) & static_cast<Word>(masks_.compare_mask)) != 0) {
    return before;
  }
  const auto mask = static_cast<Word>(masks_.swap_mask);
  return static_cast<Word>((before & static_cast<Word>(~mask)) | (operand & mask));
}

/// The same for a word of `size` bytes, 4 or 8.
std::uint64_t AtomicOperation::after(std::uint64_t before, std::size_t size) const {
  return size == 4 ? after(static_cast<std::uint32_t>(before)) : after<std::uint64_t>(before);
}

/// Atomic against other QPs, other devices and the host's CPUs. Returns the old value. @pre
/// `place` is aligned to the size of Word
template <class Word>
Word AtomicOperation::carry_out(std::byte* place) const {
  auto* at = reinterpret_cast<Word*>(place);
  Word before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(at, &before, after(before), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return before;
}

std::uint64_t AtomicOperation::carry_out_plain(std::byte* place) const {
  auto* at = reinterpret_cast<std::uint64_t*>(place);
  if (add_) return __atomic_fetch_add(at, swap_add_, __ATOMIC_SEQ_CST);
  auto before = compare_;
  __atomic_compare_exchange_n(at, &before, swap_add_, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return before;
}

bool AtomicOperation::carry_out(KeyTable& keys, MemoryKey& key, std::uint64_t address,
                                std::uint64_t& original) const {
  const auto size = this->size();
  MemoryPiece place{};
  const bool found = keys.for_each_piece(key, address, size, pcie::DmaAccess::kReadWrite,
                                         [&](const MemoryPiece& piece) { place = piece; });
  if (!found || place.size != size) return false;
  if (place.host != nullptr && reinterpret_cast<std::uintptr_t>(place.host) % size == 0) {
    original = !masked_    ? carry_out_plain(place.host)
               : size == 4 ? carry_out<std::uint32_t>(place.host)
                           : carry_out<std::uint64_t>(place.host);
    return true;
  }
  // Memory of a peer process: atomic only against other accesses of this device, which is all that
  // IBV_ATOMIC_HCA promises.
  const auto bytes = std::as_writable_bytes(std::span(&original, 1)).first(size);
  if (!keys.read(key, address, bytes)) return false;
  const auto next = masked_                ? after(original, size)
                    : add_                 ? original + swap_add_
                    : original == compare_ ? swap_add_
                                           : original;
  return keys.write(key, address, std::as_bytes(std::span(&next, 1)).first(size));
}

}  // namespace softhca::rdma
