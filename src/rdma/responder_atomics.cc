// Atomics (IBTA 9.4.5), and masked atomics of 4 and 8 bytes, which no InfiniBand document defines
// (src/wire/README.md).

#include <array>
#include <cstring>

#include "rdma/engine.h"
#include "rdma/responder.h"

namespace softhca::rdma {

using wire::Operation;

/// The operation of an atomic request.
struct Responder::Atomic {
  bool add = false;
  bool masked = false;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  wire::MaskedAtomic masks{};

  /// The new value for old value `before`.
  template <class Word>
  Word after(Word before) const {
    const auto operand = static_cast<Word>(swap_add);
    if (add) {
      // Add within each field; the mask marks the top bits, whose carries are dropped.
      const auto high = static_cast<Word>(compare);
      const auto low = static_cast<Word>(~high);
      return static_cast<Word>(((before & low) + (operand & low)) ^ ((before ^ operand) & high));
    }
    if (((before ^ static_cast<Word>(compare)) & static_cast<Word>(masks.compare_mask)) != 0) {
      return before;
    }
    const auto mask = static_cast<Word>(masks.swap_mask);
    return static_cast<Word>((before & static_cast<Word>(~mask)) | (operand & mask));
  }

  /// The same for a word of `size` bytes, 4 or 8.
  std::uint64_t after(std::uint64_t before, std::size_t size) const {
    return size == 4 ? after(static_cast<std::uint32_t>(before)) : after<std::uint64_t>(before);
  }

  /// Atomic against other QPs, other devices and the host's CPUs. Returns the old value. @pre
  /// `place` is aligned to the size of Word
  template <class Word>
  Word carry_out(std::byte* place) const {
    auto* at = reinterpret_cast<Word*>(place);
    Word before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &before, after(before), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return before;
  }
  std::uint64_t carry_out_plain(std::byte* place) const {
    auto* at = reinterpret_cast<std::uint64_t*>(place);
    if (add) return __atomic_fetch_add(at, swap_add, __ATOMIC_SEQ_CST);
    auto before = compare;
    __atomic_compare_exchange_n(at, &before, swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return before;
  }
};

Responder::Verdict Responder::execute_atomic(const wire::IbPacket& packet,
                                             const wire::Frame& frame) {
  using enum Verdict::Kind;
  const auto& eth = packet.ext.atomic;
  const auto operation = packet.info().operation;
  Atomic atomic{.add = operation == Operation::kFetchAdd || operation == Operation::kMaskedFetchAdd,
                .masked = operation == Operation::kMaskedCompareSwap ||
                          operation == Operation::kMaskedFetchAdd,
                .swap_add = eth.swap_add,
                .compare = eth.compare};
  if (!qp_.attributes().remote_atomic) return {kInvalid, Reason::kAtomicForbidden};
  if (atomic.masked) {
    std::array<std::byte, wire::MaskedAtomicLayout::kSize> bytes;
    frame.copy_range(packet.payload_offset, bytes);
    atomic.masks = wire::MaskedAtomic::parse(util::View<wire::MaskedAtomicLayout>(bytes));
    if (atomic.masks.size != 4 && atomic.masks.size != 8) {
      return {kInvalid, Reason::kAtomicUnaligned};
    }
    if ((atomic.masks.size & qp_.attributes().masked_atomic_sizes) == 0) {
      return {kInvalid, Reason::kAtomicForbidden};
    }
  }
  const auto size = atomic.masks.size;
  if (eth.virtual_address % size != 0) return {kInvalid, Reason::kAtomicUnaligned};
  const auto found =
      engine_.keys.check(MKey(eth.rkey.value()), user(), eth.virtual_address, size, kRemoteAtomic);
  const PageFault fault{.kind = PageFaultKind::kRemoteWrite,
                        .packet_length = size,
                        .rkey = MKey(eth.rkey.value()),
                        .address = eth.virtual_address,
                        .length = size};
  if (!found) return wait_for_page(fault, {kAccess, found.reason});
  std::uint64_t original = 0;
  if (!swap(*found.key, eth.virtual_address, atomic, original)) {
    return wait_for_page(fault, Verdict::of_memory(engine_.keys.fault()));
  }
  ++qp_.counters_->rx_atomic_requests;
  ++msn_;
  atomics_.grow(std::max(1u, qp_.attributes().max_dest_rd_atomic));
  atomics_.remember(packet.bth.psn, original);
  push_answer({.next = packet.bth.psn,
               .left = 1,
               .atomic = true,
               .msn = msn_,
               .pd = {},
               .rkey = {},
               .original = original});
  return {};
}

bool Responder::swap(MemoryKey& key, std::uint64_t address, const Atomic& atomic,
                     std::uint64_t& original) {
  const auto size = atomic.masks.size;
  MemoryPiece place{};
  const bool found = engine_.keys.for_each_piece(key, address, size, pcie::DmaAccess::kReadWrite,
                                                 [&](const MemoryPiece& piece) { place = piece; });
  if (!found || place.size != size) return false;
  if (place.host != nullptr && reinterpret_cast<std::uintptr_t>(place.host) % size == 0) {
    original = !atomic.masked ? atomic.carry_out_plain(place.host)
               : size == 4    ? atomic.carry_out<std::uint32_t>(place.host)
                              : atomic.carry_out<std::uint64_t>(place.host);
    return true;
  }
  // Memory of a peer process: atomic only against other accesses of this device, which is all that
  // IBV_ATOMIC_HCA promises.
  const auto bytes = std::as_writable_bytes(std::span(&original, 1)).first(size);
  if (!engine_.keys.read(key, address, bytes)) return false;
  const auto next = atomic.masked                ? atomic.after(original, size)
                    : atomic.add                 ? original + atomic.swap_add
                    : original == atomic.compare ? atomic.swap_add
                                                 : original;
  return engine_.keys.write(key, address, std::as_bytes(std::span(&next, 1)).first(size));
}

void Responder::repeat_atomic(const wire::IbPacket& packet) {
  const auto* original = atomics_.find(packet.bth.psn);
  if (original == nullptr) {
    return engine_.drop(&qp_, Drop::kSequence, Reason::kRepeatedAtomicTooOld);
  }
  if (!make_room_for(packet.bth.psn)) return;
  push_repeated({.next = packet.bth.psn,
                 .left = 1,
                 .atomic = true,
                 .msn = msn_,
                 .pd = {},
                 .rkey = {},
                 .original = *original});
}

}  // namespace softhca::rdma
