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
using StridedEntry = spec::connectx::strided_block_entry;

constexpr auto kStridedBlock =
    static_cast<std::uint32_t>(spec::connectx::klm_list_op::STRIDED_BLOCK);

static_assert(Klm::kSize == kOctword);
static_assert(Header::kSize == kOctword && StridedEntry::kSize == kOctword);

}  // namespace

void KeyList::write(std::size_t first, std::span<const std::byte> octwords) {
  assert(octwords.size() % kOctword == 0);
  const auto begin = first * kOctword;
  bytes_.resize(std::max(bytes_.size(), begin + octwords.size()));
  std::ranges::copy(octwords, bytes_.begin() + static_cast<std::ptrdiff_t>(begin));
}

void KeyList::reserve(std::size_t octwords) { bytes_.reserve(octwords * kOctword); }

bool KeyList::append_from(const KeyList& list, std::size_t first,
                          std::span<const std::byte> changed, std::size_t octwords_max) {
  const auto begin = bytes_.size();
  const auto changed_at = first * kOctword;
  const auto all = std::max(list.bytes_.size(), changed_at + changed.size());
  const auto end = std::min(all, begin + octwords_max * kOctword);
  if (begin == end) return false;
  bytes_.resize(end);
  // Copies the part of `from` that is in [begin, end) of the list. `at`: list offset of `from`.
  const auto copy = [&](std::span<const std::byte> from, std::size_t at) {
    const auto low = std::max(begin, at);
    const auto high = std::min(end, at + from.size());
    if (low < high) std::ranges::copy(from.subspan(low - at, high - low), &bytes_[low]);
  };
  copy(list.bytes_, 0);
  copy(changed, changed_at);
  return true;
}

std::size_t KeyList::octwords() const { return bytes_.size() / kOctword; }

std::array<std::byte, 32> KeyList::first() const {
  std::array<std::byte, 32> first{};
  std::copy_n(bytes_.begin(), std::min(bytes_.size(), first.size()), first.begin());
  return first;
}

// KeyListReader ----------------------------------------------------------------------------------

std::span<const std::byte> KeyListReader::octword(const KeyList& list, std::size_t number) const {
  static constexpr std::array<std::byte, kOctword> kNothing{};
  const auto at = number * kOctword;
  if (number >= first_ && at - first_ * kOctword < changed_.size()) {
    return changed_.subspan(at - first_ * kOctword, kOctword);
  }
  return at < list.bytes().size() ? list.bytes().subspan(at, kOctword) : kNothing;
}

/// False if a strided layout contradicts itself.
bool KeyListReader::begin(const KeyList& list) {
  end_ = std::max(list.octwords(), first_ + changed_.size() / kOctword);
  std::size_t entries = end_;
  const util::View<Header> header(octword(list, 0));
  strided_ = end_ != 0 && header.get(Header::op) == kStridedBlock;
  if (strided_) {
    entries = header.get(Header::num_entries);
    meaning_.pattern.turns = header.get(Header::repeat_count);
    turn_bytes_ = header.get(Header::byte_count);
    if (meaning_.pattern.turns == 0 || entries >= end_) return false;
    next_ = 1;
    end_ = entries + 1;
    meaning_.pattern.strides.reserve(entries);
  }
  // Reserve room for all entries, so that no step reallocates.
  meaning_.pieces.list.reserve(entries);
  meaning_.pieces.ends.reserve(entries);
  return true;
}

bool KeyListReader::read(const KeyList& list, std::size_t octwords_max) {
  if (next_ == 0 && !begin(list)) {
    meaning_.adds_up = false;
    return true;
  }
  const auto end = next_ + std::min(octwords_max, end_ - next_);
  for (; next_ < end; ++next_) {
    const auto entry = octword(list, next_);
    strided_ ? add_strided(entry) : add_key(entry);
  }
  if (next_ < end_) return false;
  if (strided_) {
    const auto& ends = meaning_.pieces.ends;
    const auto total = ends.empty() ? 0 : ends.back();
    meaning_.adds_up = total != 0 && total == turn_bytes_;
  }
  return true;
}

void KeyListReader::add_key(std::span<const std::byte> octword) {
  const util::View<Klm> klm(octword);
  const auto size = klm.get(Klm::byte_count);
  // Drivers pad lists of keys with entries of zero bytes.
  if (size == 0) return;
  meaning_.pieces.add(
      {.address = klm.get(Klm::address), .length = size, .lkey = rdma::MKey(klm.get(Klm::mkey))});
}

void KeyListReader::add_strided(std::span<const std::byte> octword) {
  const util::View<StridedEntry> entry(octword);
  const auto size = entry.get(StridedEntry::byte_count);
  if (size == 0) return;
  meaning_.pieces.add({.address = entry.get(StridedEntry::address),
                       .length = size,
                       .lkey = rdma::MKey(entry.get(StridedEntry::mkey))});
  meaning_.pattern.strides.push_back(entry.get(StridedEntry::stride));
}

}  // namespace softhca::connectx
