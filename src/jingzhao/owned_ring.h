// CQs and EQs: rings whose entries carry an owner bit (JingZhao 3.3.1). Software returns an entry
// to the device by setting that bit; there is no consumer index.
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
  /// CQEs and EQEs have the same size, and the owner bit at the same position.
  static constexpr std::uint32_t kEntry = spec::jingzhao::cqe::kSize;
  static_assert(spec::jingzhao::eqe::kSize == kEntry);
  using Entry = std::array<std::byte, kEntry>;
  using View = util::MutableView<spec::jingzhao::cqe>;

  enum class Written : std::uint8_t {
    kYes,
    kFull,  ///< software still owns the entry
    kGone,  ///< the memory cannot be accessed
  };

  OwnedRing() = default;
  /// `producer`: counter of the next entry. It counts entries without wrapping at the ring size, so
  /// that a resized ring continues at the right slot.
  OwnedRing(QueueMemory memory, unsigned log_count, std::uint32_t producer)
      : memory_(memory), log_count_(log_count), producer_(producer) {}

  std::uint32_t producer() const { return producer_; }
  unsigned log_count() const { return log_count_; }

  /// Writes the next entry and publishes the owner bit, for software, last. `fill(entry)` fills in
  /// a zeroed entry and leaves the owner bit zero. For a local ring the entry is built in
  /// registers.
  template <class Fill>
  Written write(Fill&& fill) {
    const auto offset = place(producer_);
    auto* const to = memory_.at(offset, kEntry);
    if (to == nullptr) [[unlikely]] {
      Entry entry{};
      fill(View(entry));
      return write_slow(offset, entry);
    }
    if (!is_ours(load_last(to))) [[unlikely]]
      return Written::kFull;
    put(to, fill);
    return Written::kYes;
  }
  /// Fast path of write() without any call. False, with no effect, in any other case: then write()
  /// gives the reason.
  template <class Fill>
  bool write_fast(Fill&& fill) {
    auto* const to = memory_.at_fast(place(producer_), kEntry);
    if (to == nullptr || !is_ours(load_last(to))) return false;
    put(to, fill);
    return true;
  }
  /// True if software still owns the last written entry.
  bool last_unreturned() { return unreturned(0); }
  /// True if software still owns the entry written `newer` entries before the last one. Software
  /// returns entries in order, so it then owns all newer ones too.
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
  /// Stores dword by dword, matching how the entry is filled in.
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
  Written write_slow(std::uint64_t offset, const Entry& entry);
  std::uint64_t place(std::uint32_t counter) const {
    return std::uint64_t{counter & ((std::uint32_t{1} << log_count_) - 1)} * kEntry;
  }

  QueueMemory memory_;
  unsigned log_count_ = 0;
  std::uint32_t producer_ = 0;
};

}  // namespace softhca::jingzhao
