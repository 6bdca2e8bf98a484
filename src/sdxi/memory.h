// How the function reaches memory: address spaces, and which of them a request uses.
//
// Software on other processors reads and writes the same memory concurrently. Words that both sides
// use (valid bits, indices, states, completion signals) are accessed as single atomic words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pcie/dma_space.h"
#include "pcie/function.h"
#include "sdxi/refusal.h"
#include "util/endian.h"
#include "util/trace.h"

namespace softhca::sdxi {

using pcie::Iova;

/// 20 bits.
using Pasid = std::uint32_t;

/// One address space as a requester sees it. A value; every access to an empty one fails.
class AddressSpace {
 public:
  AddressSpace() = default;
  explicit AddressSpace(const pcie::DmaSpace* dma) : dma_(dma) {}

  explicit operator bool() const { return dma_ != nullptr; }

  bool read(Iova from, std::span<std::byte> out) const;
  bool write(Iova to, std::span<const std::byte> in) const;

  /// Naturally aligned words, atomic if the memory is local to the process. Loads acquire, stores
  /// release.
  std::optional<std::uint64_t> load64(Iova at) const;
  std::optional<std::uint8_t> load8(Iova at) const;
  bool store64(Iova at, std::uint64_t value) const;
  bool store8(Iova at, std::uint8_t value) const;
  /// The host address of [at, at + size), aligned to 8 bytes, if all of it is local memory that may
  /// be read and written; else null. Valid until the host can change the mappings, that is, within
  /// a run().
  std::byte* place(Iova at, std::uint64_t size) const {
    auto* found =
        dma_ == nullptr ? nullptr : dma_->translate(at, size, pcie::DmaAccess::kReadWrite);
    return reinterpret_cast<std::uintptr_t>(found) % 8 == 0 ? found : nullptr;
  }

  /// The naturally aligned word at `at` if it is local memory that may be read; else null. Valid as
  /// long as place().
  const std::uint64_t* readable_word(Iova at) const {
    return reinterpret_cast<const std::uint64_t*>(word(at, 8, pcie::DmaAccess::kRead));
  }

  /// True if [at, at + size) is local memory that may be written, aligned to its size.
  bool can_write(Iova at, std::size_t size) const {
    return word(at, size, pcie::DmaAccess::kWrite) != nullptr;
  }

  /// Reads a structure word by word, the first word first. The size of `out` is a multiple of 8
  /// bytes.
  bool load_words(Iova from, std::span<std::byte> out) const;

  /// Replaces the word at `at` by `change(old)`, atomically if the memory is local; returns the old
  /// word.
  template <class Word, class Change>
  std::optional<Word> update(Iova at, Change change) const;

  /// The same by a read and a write, for a function that may not send atomic requests.
  template <class Word, class Change>
  std::optional<Word> update_plainly(Iova at, Change change) const;

  /// The first part of [at, at + size) that is one piece of local memory; may be empty.
  std::span<std::byte> piece(Iova at, std::uint64_t size, pcie::DmaAccess access) const;

  /// The local mapping that holds `at`, if it permits `access`; else empty. Valid as long as
  /// place().
  pcie::DmaSpace::Window window(Iova at, pcie::DmaAccess access) const {
    return dma_ == nullptr ? pcie::DmaSpace::Window{} : dma_->window(at, access);
  }

  /// Why an access failed.
  struct Fault {
    spec::err_sub_step sub_step;
    spec::err_class err_class;
  };
  Fault explain(Iova at) const;

 private:
  std::byte* word(Iova at, std::size_t size, pcie::DmaAccess access) const;

  const pcie::DmaSpace* dma_ = nullptr;
};

/// Reads whole 8-byte words from `place`, the first word first.
inline void load_words(const std::byte* place, std::span<std::byte> out) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(place);
  for (std::size_t i = 0; i < out.size() / 8; ++i) {
    util::store_le64(&out[i * 8], __atomic_load_n(words + i, __ATOMIC_ACQUIRE));
  }
}

/// SDXI 5.6: a cleared valid bit is visible before the descriptor's writes. On amd64 the fence is
/// no instruction, because stores become visible in order.
inline void order_after_valid() { __atomic_thread_fence(__ATOMIC_RELEASE); }

/// SDXI 5.3 step 8: stores the first byte of a header, with vl = 0, into its slot.
inline void store_cleared_valid(std::byte* slot, std::byte header) {
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(slot), static_cast<std::uint8_t>(header),
                   __ATOMIC_RELEASE);
  order_after_valid();
}

/// Reads a descriptor's bytes from 8 on, unrolled.
inline void load_descriptor_body(const std::byte* place,
                                 std::array<std::byte, spec::kDescriptorSize>& out) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(place);
  const auto move = [&](std::size_t i) {
    util::store_le64(out.data() + i * 8, __atomic_load_n(words + i, __ATOMIC_RELAXED));
  };
  move(1), move(2), move(3), move(4), move(5), move(6), move(7);
}

/// Address spaces that a PASID selects. If the host provides none, the function does not support
/// PASIDs, and refuses structures that ask for one.
class PasidSpaces {
 public:
  virtual ~PasidSpaces() = default;
  /// Null if nothing is mapped for this PASID. Valid until the function is reset.
  virtual const pcie::DmaSpace* find(Pasid pasid) const = 0;
};

/// The memory that one function reaches: without a PASID its DmaSpace, with a PASID the space that
/// the host provides.
class FunctionMemory {
 public:
  /// `any_pasid`: as DeviceOptions::any_pasid.
  FunctionMemory(const pcie::Function& function, const PasidSpaces* spaces, bool any_pasid)
      : function_(function), spaces_(spaces), any_pasid_(any_pasid) {}

  /// Empty if the function may not send requests or the PASID selects nothing.
  AddressSpace select(std::optional<Pasid> pasid) const {
    if (!function_.config().may_send_requests()) return {};
    if (!pasid || any_pasid_) return AddressSpace(&function_.dma());
    return AddressSpace(spaces_ == nullptr ? nullptr : spaces_->find(*pasid));
  }
  bool supports_pasid() const { return spaces_ != nullptr || any_pasid_; }
  /// The function's trace; null if there is none. With a trace no memory is local
  /// (pcie::DmaSpace::set_tap), so that steps are noted where memory behind a peer is accessed.
  util::Trace* trace() const { return function_.trace(); }
  /// SDXI 8.4: AtomicOp Requester Enable.
  bool atomic_requests_enabled() const { return function_.config().atomic_requests_enabled(); }

 private:
  const pcie::Function& function_;
  const PasidSpaces* spaces_;
  bool any_pasid_;
};

template <class Word, class Change>
std::optional<Word> AddressSpace::update(Iova at, Change change) const {
  if (auto* bytes = word(at, sizeof(Word), pcie::DmaAccess::kReadWrite)) {
    auto* place = reinterpret_cast<Word*>(bytes);
    Word old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(place, &old, static_cast<Word>(change(old)), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return old;
  }
  // Memory behind a socket has no atomic operation, so that a read and a write are the best
  // available.
  return update_plainly<Word>(at, change);
}

template <class Word, class Change>
std::optional<Word> AddressSpace::update_plainly(Iova at, Change change) const {
  Word old;
  const auto bytes = std::as_writable_bytes(std::span(&old, 1));
  if (!read(at, bytes)) return std::nullopt;
  const auto changed = static_cast<Word>(change(old));
  if (!write(at, std::as_bytes(std::span(&changed, 1)))) return std::nullopt;
  return old;
}

}  // namespace softhca::sdxi
