// CQs and EQs: rings whose entries say by a bit who owns them (JingZhao 3.3.1). Software gives an
// entry to the device by setting it; there is no consumer index.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "jingzhao/queue_memory.h"
#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::jingzhao {

class OwnedRing {
 public:
  /// CQEs and EQEs have one size, and their owner in one place.
  static constexpr std::uint32_t kEntry = spec::jingzhao::cqe::kSize;
  static_assert(spec::jingzhao::eqe::kSize == kEntry);
  using Entry = std::array<std::byte, kEntry>;
  using View = util::MutableView<spec::jingzhao::cqe>;

  enum class Written : std::uint8_t {
    kYes,
    kFull,  ///< software owns the entry
    kGone,  ///< the memory is not there
  };

  OwnedRing() = default;
  /// `producer`: counts entries; of the next one. A counter, because a ring that gets another size
  /// goes on at its place in that.
  OwnedRing(QueueMemory memory, unsigned log_count, std::uint32_t producer)
      : memory_(memory), log_count_(log_count), producer_(producer) {}

  std::uint32_t producer() const { return producer_; }
  unsigned log_count() const { return log_count_; }

  /// Writes the next entry, its owner, software, after all else. `fill(entry)` says what it is:
  /// zero at first, and the owner bit stays so. It is made in registers where the ring is at hand.
  template <class Fill>
  Written write(Fill&& fill) {
    const auto offset = place(producer_);
    auto* const to = memory_.at(offset, kEntry);
    if (to == nullptr) [[unlikely]] {
      Entry entry{};
      fill(View(entry));
      return write_afar(offset, entry);
    }
    if (!is_ours(load_last(to))) [[unlikely]]
      return Written::kFull;
    put(to, fill);
    return Written::kYes;
  }
  /// The same without a call of anybody. False: nothing has been done, and write() tells why.
  template <class Fill>
  bool write_at_hand(Fill&& fill) {
    auto* const to = memory_.at_hand(place(producer_), kEntry);
    if (to == nullptr || !is_ours(load_last(to))) return false;
    put(to, fill);
    return true;
  }
  /// Whether software still has the entry before the next, which was written.
  bool last_unreturned() { return unreturned(0); }
  /// Whether it still has the entry that was written `newer` entries before that one. Software
  /// returns them in order, so then it has all that are newer, too.
  bool unreturned(std::uint32_t newer);

 private:
  static constexpr std::size_t kBody = kEntry - sizeof(std::uint32_t);

  using Last = std::array<std::byte, sizeof(std::uint32_t)>;
  static Last load_last(const std::byte* entry) {
    const auto raw =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(entry + kBody), __ATOMIC_ACQUIRE);
    Last last;
    std::memcpy(last.data(), &raw, sizeof raw);
    return last;
  }
  static bool is_ours(const Last& last) {
    std::array<std::byte, kEntry> entry{};
    std::memcpy(entry.data() + kBody, last.data(), last.size());
    return util::View<spec::jingzhao::cqe>(entry).get(spec::jingzhao::cqe::owner) ==
           static_cast<std::uint32_t>(spec::jingzhao::owner::HW);
  }
  /// Dword by dword, as it is filled in.
  template <class Fill>
  void put(std::byte* to, Fill&& fill) {
    Entry entry{};
    fill(View(entry));
#pragma GCC unroll 8
    for (std::size_t at = 0; at != kBody; at += sizeof(std::uint32_t)) {
      std::memcpy(to + at, entry.data() + at, sizeof(std::uint32_t));
    }
    std::uint32_t last;
    std::memcpy(&last, entry.data() + kBody, sizeof last);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + kBody), last, __ATOMIC_RELEASE);
    ++producer_;
  }
  Written write_afar(std::uint64_t offset, const Entry& entry);
  std::uint64_t place(std::uint32_t counter) const {
    return std::uint64_t{counter & ((std::uint32_t{1} << log_count_) - 1)} * kEntry;
  }

  QueueMemory memory_;
  unsigned log_count_ = 0;
  std::uint32_t producer_ = 0;
};

}  // namespace softhca::jingzhao
