// The ICM cache (JingZhao 1.2): entries of one ICM table that are on chip, with write-back to host
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "jingzhao/icm.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

class IcmCache {
 public:
  /// Position of the table: entry i is at base + i * entry_size.
  struct Table {
    Icm* icm = nullptr;
    std::uint64_t base = 0;
    std::uint32_t entry_size = 0;  ///< bytes
  };
  struct Counters {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;  ///< entries read from host memory
    std::uint64_t evictions = 0;
    std::uint64_t write_backs = 0;
    std::uint64_t lost = 0;  ///< changed entries whose memory was gone at write-back
  };
  /// The user of the entries. State decoded from an entry stays valid while `brought` is the same.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The entry is about to be written back or inspected: store all pending changes in it.
    virtual void update(std::uint32_t index, std::span<std::byte> entry) = 0;
  };
  /// An entry on chip, valid until the next call.
  struct Entry {
    std::byte* bytes;       ///< null: the memory is unmapped or gone
    std::uint64_t brought;  ///< number of the load from host memory; unique, not 0
  };

  /// Number of entries that the constructor makes. grow() makes the others.
  static constexpr std::uint32_t kChunk = 256;
  /// Work (util::WorkBudget) of making or freeing an entry.
  static constexpr std::int64_t kEntryWork = 30;

  /// `entries`: capacity, at least 1. `owner`: null if entries change only through this class. With
  /// more than kChunk entries, call grow() before anything else, until it returns true.
  IcmCache(const Table& table, std::uint32_t entries, Owner* owner);
  /// Makes entries until `work` is spent. True if all are made.
  bool grow(util::WorkBudget& work);
  /// Frees entries until `work` is spent. True if all are freed. The cache must not be used
  /// afterwards.
  bool shrink(util::WorkBudget& work);

  /// `slot`: caches the position of the entry for the caller; initially 0.
  Entry get(std::uint32_t index, std::uint32_t& slot) {
    auto& line = lines_[slot];
    if (line.index == index) {
      ++counters_.hits;
      line.used = true;
      return {data(slot), line.brought};
    }
    return find(index, slot);
  }
  Entry get(std::uint32_t index) {
    std::uint32_t slot = 0;
    return get(index, slot);
  }
  /// Entry::brought as from get(), for an owner with decoded state that does not need the bytes. 0
  /// if the memory is unmapped or gone.
  std::uint64_t touch(std::uint32_t index, std::uint32_t& slot) {
    auto& line = lines_[slot];
    if (line.index == index) [[likely]] {
      ++counters_.hits;
      line.used = true;
      return line.brought;
    }
    return find(index, slot).brought;
  }
  /// A value that Entry::brought never has.
  static constexpr std::uint64_t kNever = UINT64_MAX;
  /// Fast path of touch() for a known slot: true if the slot still has the load `brought`. False
  /// has no effect. @pre brought != 0
  bool touch_fast(std::uint32_t slot, std::uint64_t brought) {
    auto& line = lines_[slot];
    if (line.brought != brought) return false;
    ++counters_.hits;
    line.used = true;
    return true;
  }
  /// Like get(), for an entry that the device writes as a whole: the old contents are not read. The
  /// bytes are zero.
  Entry make(std::uint32_t index);
  /// Marks the entry as different from host memory. @pre get() or make() has just returned this
  /// slot
  void mark_changed(std::uint32_t slot) { lines_[slot].changed = true; }
  /// The same by index. @pre get() or make() has just returned it
  void mark_index_changed(std::uint32_t index) { lines_[lookup(index)].changed = true; }

  bool mapped(std::uint32_t index) const {
    return table_.icm->mapped(address(index), table_.entry_size);
  }
  /// The entries of the table that have a byte in [virt, virt + size). `count`: size of the table.
  struct Range {
    std::uint32_t first;
    std::uint32_t end;
  };
  Range overlap(std::uint64_t virt, std::uint64_t size, std::uint32_t count) const;
  /// Drops the entries in these ranges without a write-back and without a call of the owner.
  /// @pre the ranges are merged
  void drop(std::span<const Icm::Range> ranges);
  /// Writes the changed entries of [first, end) back.
  void write_back(std::uint32_t first, std::uint32_t end);
  /// Drops all entries without a write-back.
  void clear();

  const Table& table() const { return table_; }
  const Counters& counters() const { return counters_; }
  std::size_t capacity() const { return capacity_; }
  /// Number of entries on chip.
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Line {
    std::uint32_t index = kNone;
    std::uint32_t next = kNone;  ///< next line of the same bucket
    std::uint64_t brought = 0;
    bool used = false;  ///< used since the clock hand last passed
    bool changed = false;
  };

  std::uint64_t address(std::uint32_t index) const {
    return table_.base + std::uint64_t{index} * table_.entry_size;
  }
  std::byte* data(std::uint32_t slot) {
    return chunks_[slot / kChunk].get() + std::size_t{slot % kChunk} * table_.entry_size;
  }
  std::span<std::byte> entry(std::uint32_t slot) { return {data(slot), table_.entry_size}; }
  std::uint32_t& bucket(std::uint32_t index) { return buckets_[index & (buckets_.size() - 1)]; }

  std::uint32_t lookup(std::uint32_t index);
  Entry find(std::uint32_t index, std::uint32_t& slot);
  std::uint32_t take_line(std::uint32_t index);
  void forget(std::uint32_t slot);
  void write_back(std::uint32_t slot);
  void add_chunk();

  Table table_;
  Owner* owner_;
  std::vector<Line> lines_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;  ///< the bytes of kChunk entries each
  std::vector<std::uint32_t> buckets_;                ///< first line of each hash bucket
  std::uint32_t capacity_;
  std::uint32_t hand_ = 0;
  std::size_t size_ = 0;
  std::uint64_t brought_ = 0;
  Counters counters_;
};

}  // namespace softhca::jingzhao
