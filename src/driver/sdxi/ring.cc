#include "driver/sdxi/ring.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace softhca::driver::sdxi {
namespace {

// Indices are little-endian words that the function changes concurrently (SDXI 2).
static_assert(std::endian::native == std::endian::little);

std::uint64_t* word(std::byte* at) { return reinterpret_cast<std::uint64_t*>(at); }

}  // namespace

std::uint64_t Ring::read_index() const {
  return __atomic_load_n(word(read_index_), __ATOMIC_ACQUIRE);
}

std::uint64_t Ring::write_index() const {
  return __atomic_load_n(word(write_index_), __ATOMIC_ACQUIRE);
}

std::optional<std::uint64_t> Ring::enqueue(std::span<const Descriptor> descriptors) const {
  assert(!descriptors.empty() && descriptors.size() <= entries());
  std::uint64_t first = 0;
  for (;;) {
    // SDXI 5.2: read Read_Index before Write_Index, so that the pair is consistent.
    const auto read = read_index();
    first = write_index();
    if (first + descriptors.size() - read > entries()) return std::nullopt;
    if (__atomic_compare_exchange_n(word(write_index_), &first, first + descriptors.size(), false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      break;
    }
  }
  // The function stops at the first slot, whose vl the previous owner left 0, until all others are
  // complete: one release store publishes the batch.
  auto* const begin = slots_.data();
  auto* const end = begin + slots_.size();
  auto* const head = begin + first % entries() * spec::kDescriptorSize;
  auto* slot = head;
  for (const auto& descriptor : descriptors.subspan(1)) {
    slot += spec::kDescriptorSize;
    if (slot == end) slot = begin;
    fill(slot, descriptor);
  }
  fill(head, descriptors.front());
  return first + descriptors.size();
}

inline void Ring::fill(std::byte* slot, const Descriptor& descriptor) {
  // Another producer may have written the slot in the last lap. The function, which may be another
  // process, orders this thread after that producer: this load acquires the function's release
  // store.
  (void)__atomic_load_n(word(slot), __ATOMIC_ACQUIRE);
  const auto bytes = descriptor.bytes();
  std::memcpy(slot + 8, bytes.data() + 8, bytes.size() - 8);
  alignas(8) std::array<std::byte, 8> head;
  std::memcpy(head.data(), bytes.data(), head.size());
  util::MutableView<spec::dsc_header>(head).set(spec::dsc_header::vl, 1);
  __atomic_store_n(word(slot), util::load_le64(head.data()), __ATOMIC_RELEASE);
}

}  // namespace softhca::driver::sdxi
