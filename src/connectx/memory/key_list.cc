#include "connectx/memory/key_list.h"

#include <algorithm>
#include <cassert>

#include "connectx/memory/mkey_attributes.h"
#include "spec/connectx/mkey.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using Klm = spec::connectx::klm_entry;
using Header = spec::connectx::strided_block_header;
using Entry = spec::connectx::strided_block_entry;

constexpr auto kStridedBlock =
    static_cast<std::uint32_t>(spec::connectx::klm_list_op::STRIDED_BLOCK);

static_assert(Klm::kSize == kOctword);
static_assert(Header::kSize == kOctword && Entry::kSize == kOctword);

}  // namespace

void KeyList::write(std::size_t first, std::span<const std::byte> octwords) {
  assert(octwords.size() % kOctword == 0);
  const auto begin = first * kOctword;
  bytes_.resize(std::max(bytes_.size(), begin + octwords.size()));
  std::ranges::copy(octwords, bytes_.begin() + static_cast<std::ptrdiff_t>(begin));
}

std::size_t KeyList::octwords() const { return bytes_.size() / kOctword; }

std::array<std::byte, 32> KeyList::first() const {
  std::array<std::byte, 32> first{};
  std::copy_n(bytes_.begin(), std::min(bytes_.size(), first.size()), first.begin());
  return first;
}

KeyList::Meaning KeyList::meaning() const {
  const std::span<const std::byte> bytes(bytes_);
  if (!bytes.empty() && util::View<Header>(bytes).get(Header::op) == kStridedBlock) {
    return strided();
  }
  Meaning meaning;
  for (std::size_t at = 0; at != bytes.size(); at += kOctword) {
    const util::View<Klm> klm(bytes.subspan(at, kOctword));
    const auto size = klm.get(Klm::byte_count);
    // Drivers fill lists of keys up with entries of no bytes.
    if (size == 0) continue;
    meaning.pieces.push_back(
        {.address = klm.get(Klm::address), .length = size, .lkey = rdma::MKey(klm.get(Klm::mkey))});
  }
  return meaning;
}

KeyList::Meaning KeyList::strided() const {
  const std::span<const std::byte> bytes(bytes_);
  const util::View<Header> header(bytes);
  Meaning meaning;
  meaning.adds_up = false;
  meaning.pattern.turns = header.get(Header::repeat_count);
  const std::size_t entries = header.get(Header::num_entries);
  if (meaning.pattern.turns == 0 || entries >= octwords()) return meaning;
  std::uint64_t total = 0;
  for (std::size_t i = 1; i <= entries; ++i) {
    const util::View<Entry> entry(bytes.subspan(i * kOctword, kOctword));
    const auto size = entry.get(Entry::byte_count);
    if (size == 0) continue;
    total += size;
    meaning.pieces.push_back({.address = entry.get(Entry::address),
                              .length = size,
                              .lkey = rdma::MKey(entry.get(Entry::mkey))});
    meaning.pattern.strides.push_back(entry.get(Entry::stride));
  }
  meaning.adds_up = total != 0 && total == header.get(Header::byte_count);
  return meaning;
}

}  // namespace softhca::connectx
