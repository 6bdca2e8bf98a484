// The ICM cache (JingZhao 1.2): entries of one table of the ICM that the device has at hand, and
// their way back to the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jingzhao/icm.h"

namespace softhca::jingzhao {

class IcmCache {
 public:
  /// Where the table stands: entry i at base + i * entry_size.
  struct Table {
    Icm* icm = nullptr;
    std::uint64_t base = 0;
    std::uint32_t entry_size = 0;  ///< bytes
  };
  struct Counters {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;  ///< entries that were read from the host's memory
    std::uint64_t evictions = 0;
    std::uint64_t write_backs = 0;
    std::uint64_t lost = 0;  ///< changed entries whose memory was gone when they were to go back
  };
  /// Who works with the entries. It may keep what it made of one as long as `brought` is the same.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The entry leaves the chip, or is looked at: what the owner has changed is to stand in it.
    virtual void update(std::uint32_t index, std::span<std::byte> entry) = 0;
  };
  /// An entry on chip, until the next call.
  struct Entry {
    std::byte* bytes;       ///< null: its memory is not mapped, or gone
    std::uint64_t brought;  ///< another number each time it comes from the host's memory; not 0
  };

  /// `entries`: that are on chip at once, at least 1. `owner`: null if entries only change here.
  IcmCache(const Table& table, std::uint32_t entries, Owner* owner);

  /// `slot` is the caller's note of where the entry was last; 0 at first.
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
  /// Entry::brought of get() for who has made something of the entry and does not look at its
  /// bytes. 0: its memory is not mapped, or gone.
  std::uint64_t touch(std::uint32_t index, std::uint32_t& slot) {
    auto& line = lines_[slot];
    if (line.index == index) [[likely]] {
      ++counters_.hits;
      line.used = true;
      return line.brought;
    }
    return find(index, slot).brought;
  }
  /// Entry::brought of none.
  static constexpr std::uint64_t kNever = UINT64_MAX;
  /// touch() of who has seen the entry there. False, and nothing is done, unless it still is in
  /// that slot as it was brought then. @pre brought != 0
  bool touch_again(std::uint32_t slot, std::uint64_t brought) {
    auto& line = lines_[slot];
    if (line.brought != brought) return false;
    ++counters_.hits;
    line.used = true;
    return true;
  }
  /// The same of an entry that the device writes as a whole: what was there before is not read.
  /// Its bytes are zero.
  Entry make(std::uint32_t index);
  /// It differs now from what is in the host's memory. @pre get() or make() just gave this slot
  void mark_changed(std::uint32_t slot) { lines_[slot].changed = true; }
  /// Likewise. @pre it was just given
  void mark_index_changed(std::uint32_t index) { lines_[lookup(index)].changed = true; }

  bool mapped(std::uint32_t index) const {
    return table_.icm->mapped(address(index), table_.entry_size);
  }
  /// Entries in [virt, virt + size) are gone: they are forgotten as they are, without a call of the
  /// owner, which finds out by mapped().
  void drop(std::uint64_t virt, std::uint64_t size);
  /// Writes back all that was changed.
  void write_back();
  /// Forgets all entries as they are.
  void clear();

  const Table& table() const { return table_; }
  const Counters& counters() const { return counters_; }
  std::size_t capacity() const { return lines_.size(); }
  /// Entries on chip.
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Line {
    std::uint32_t index = kNone;
    std::uint32_t next = kNone;  ///< of those with the same hash
    std::uint64_t brought = 0;
    bool used = false;  ///< since the hand last passed
    bool changed = false;
  };

  std::uint64_t address(std::uint32_t index) const {
    return table_.base + std::uint64_t{index} * table_.entry_size;
  }
  std::byte* data(std::uint32_t slot) {
    return bytes_.data() + std::size_t{slot} * table_.entry_size;
  }
  std::span<std::byte> entry(std::uint32_t slot) { return {data(slot), table_.entry_size}; }
  std::uint32_t& bucket(std::uint32_t index) { return buckets_[index & (buckets_.size() - 1)]; }

  std::uint32_t lookup(std::uint32_t index);
  Entry find(std::uint32_t index, std::uint32_t& slot);
  std::uint32_t take_line(std::uint32_t index);
  void forget(std::uint32_t slot);
  void write_back(std::uint32_t slot);

  Table table_;
  Owner* owner_;
  std::vector<Line> lines_;
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> buckets_;  ///< first line of each hash
  std::uint32_t hand_ = 0;
  std::size_t size_ = 0;
  std::uint64_t brought_ = 0;
  Counters counters_;
};

}  // namespace softhca::jingzhao
