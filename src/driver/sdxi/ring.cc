#include "driver/sdxi/ring.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace softhca::driver::sdxi {
namespace {

// Indices are little-endian words that the function changes while we look (SDXI 2).
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
    // SDXI 5.2: Read_Index before Write_Index, so that the pair is never inconsistent.
    const auto read = read_index();
    first = write_index();
    if (first + descriptors.size() - read > entries()) return std::nullopt;
    if (__atomic_compare_exchange_n(word(write_index_), &first, first + descriptors.size(), false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      break;
    }
  }
  // The function stops at the first slot, whose vl the last owner left 0, until all others are
  // complete: one release store publishes the batch.
  for (std::size_t i = 1; i < descriptors.size(); ++i) fill(first + i, descriptors[i], true);
  fill(first, descriptors.front(), true);
  return first + descriptors.size();
}

void Ring::fill(std::uint64_t index, const Descriptor& descriptor, bool valid) const {
  auto* slot = &slots_[index % entries() * spec::kDescriptorSize];
  // Another producer may have written the slot in the last round. What orders us behind it goes
  // through the function, which may be another process: its release store is taken up here.
  (void)__atomic_load_n(word(slot), __ATOMIC_ACQUIRE);
  const auto bytes = descriptor.bytes();
  std::memcpy(slot + 8, bytes.data() + 8, bytes.size() - 8);
  util::Struct<spec::dsc_generic> head;
  std::memcpy(head.bytes().data(), bytes.data(), 8);
  head.sub(spec::dsc_generic::header).set(spec::dsc_header::vl, valid);
  __atomic_store_n(word(slot), util::load_le64(head.bytes().data()), __ATOMIC_RELEASE);
}

}  // namespace softhca::driver::sdxi
