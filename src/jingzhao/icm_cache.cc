#include "jingzhao/icm_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace softhca::jingzhao {

IcmCache::IcmCache(const Table& table, std::uint32_t entries, Owner* owner)
    : table_(table), owner_(owner), capacity_(std::max(entries, 1u)) {
  // Reserved here, because moving a large vector later would make a turn long.
  lines_.reserve(capacity_);
  chunks_.reserve(capacity_ / kChunk + 1);
  buckets_.reserve(std::bit_ceil(capacity_));
  add_chunk();
}

/// Makes the next kChunk entries, and a share of the buckets.
void IcmCache::add_chunk() {
  const auto count = std::min<std::size_t>(capacity_ - lines_.size(), kChunk);
  chunks_.push_back(std::make_unique<std::byte[]>(count * table_.entry_size));
  lines_.resize(lines_.size() + count);
  // There are less than twice as many buckets as entries.
  const auto buckets = std::bit_ceil(capacity_);
  buckets_.resize(std::min<std::size_t>(buckets, 2 * lines_.size()), kNone);
}

bool IcmCache::grow(util::WorkBudget& work) {
  while (lines_.size() != capacity_) {
    if (work.spent()) return false;
    add_chunk();
    work.charge(kChunk * kEntryWork);
  }
  return true;
}

bool IcmCache::shrink(util::WorkBudget& work) {
  for (; !chunks_.empty(); chunks_.pop_back()) {
    if (work.spent()) return false;
    work.charge(std::min(capacity_, kChunk) * kEntryWork);
  }
  lines_ = std::vector<Line>();
  buckets_ = std::vector<std::uint32_t>();
  return true;
}

std::uint32_t IcmCache::lookup(std::uint32_t index) {
  auto slot = bucket(index);
  while (slot != kNone && lines_[slot].index != index) slot = lines_[slot].next;
  return slot;
}

IcmCache::Entry IcmCache::find(std::uint32_t index, std::uint32_t& slot) {
  if (const auto found = lookup(index); found != kNone) {
    slot = found;
    ++counters_.hits;
    lines_[slot].used = true;
    return {data(slot), lines_[slot].brought};
  }
  ++counters_.misses;
  slot = take_line(index);
  if (!table_.icm->read(address(index), entry(slot))) {
    forget(slot);
    return {nullptr, 0};
  }
  return {data(slot), lines_[slot].brought};
}

IcmCache::Entry IcmCache::make(std::uint32_t index) {
  if (!mapped(index)) return {nullptr, 0};
  auto slot = lookup(index);
  if (slot == kNone) slot = take_line(index);
  lines_[slot].brought = ++brought_;
  lines_[slot].changed = true;
  std::ranges::fill(entry(slot), std::byte{0});
  return {data(slot), lines_[slot].brought};
}

/// A line for the entry: an empty one, or one that was not used since the clock hand last passed.
std::uint32_t IcmCache::take_line(std::uint32_t index) {
  for (;;) {
    auto& line = lines_[hand_];
    if (line.index == kNone || !std::exchange(line.used, false)) break;
    hand_ = (hand_ + 1) % static_cast<std::uint32_t>(lines_.size());
  }
  const auto slot = hand_;
  hand_ = (hand_ + 1) % static_cast<std::uint32_t>(lines_.size());
  auto& line = lines_[slot];
  if (line.index != kNone) {
    ++counters_.evictions;
    write_back(slot);
    forget(slot);
  }
  line = {.index = index, .next = bucket(index), .brought = ++brought_, .used = true};
  bucket(index) = slot;
  ++size_;
  return slot;
}

void IcmCache::write_back(std::uint32_t slot) {
  auto& line = lines_[slot];
  if (owner_ != nullptr) {
    owner_->update(line.index, entry(slot));
    line.changed = true;
  }
  if (!std::exchange(line.changed, false)) return;
  if (table_.icm->write(address(line.index), entry(slot))) {
    ++counters_.write_backs;
  } else {
    ++counters_.lost;
  }
}

void IcmCache::forget(std::uint32_t slot) {
  auto& line = lines_[slot];
  auto* link = &bucket(line.index);
  while (*link != slot) link = &lines_[*link].next;
  *link = line.next;
  line = {};
  --size_;
}

IcmCache::Range IcmCache::overlap(std::uint64_t virt, std::uint64_t size,
                                  std::uint32_t count) const {
  const auto bounded = [&](std::uint64_t entries) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(entries, count));
  };
  const auto end = virt + size;
  if (size == 0 || end <= table_.base) return {.first = 0, .end = 0};
  const auto first = virt <= table_.base ? 0 : (virt - table_.base) / table_.entry_size;
  return {.first = bounded(first), .end = bounded((end - table_.base - 1) / table_.entry_size + 1)};
}

void IcmCache::drop(std::span<const Icm::Range> ranges) {
  for (std::uint32_t slot = 0; slot != lines_.size(); ++slot) {
    if (lines_[slot].index == kNone) continue;
    const auto begin = address(lines_[slot].index);
    const auto at = std::ranges::upper_bound(ranges, begin, {}, &Icm::Range::end);
    if (at != ranges.end() && at->begin < begin + table_.entry_size) forget(slot);
  }
}

void IcmCache::write_back(std::uint32_t first, std::uint32_t end) {
  for (auto index = first; index != end; ++index) {
    if (const auto slot = lookup(index); slot != kNone) write_back(slot);
  }
}

void IcmCache::clear() {
  for (std::uint32_t slot = 0; slot != lines_.size(); ++slot) {
    if (lines_[slot].index != kNone) forget(slot);
  }
}

}  // namespace softhca::jingzhao
