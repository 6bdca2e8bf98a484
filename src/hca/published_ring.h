// Rings that the device fills and software empties: CQs and EQs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "hca/queue_memory.h"

namespace softhca::hca {

/// Software polls the last bytes of an entry to see who owns it, so those become visible after all
/// others. The document says how they encode the owner: a bit that flips with each lap(), or a
/// value that software overwrites. Software reports its consumer counter by a record or a doorbell.
class PublishedRing {
 public:
  struct Geometry {
    unsigned log_count = 0;      ///< log2 of the entries
    std::uint32_t stride = 64;   ///< bytes; an entry occupies the end of its stride
    unsigned counter_bits = 24;  ///< width of producer and consumer, more than log_count
    bool collapsed = false;      ///< every entry is written to slot 0, over the one before
    /// Entries are written even where software has not consumed the previous ones.
    bool overrun_ignore = false;
  };

  PublishedRing() = default;
  /// @pre the memory holds all entries
  PublishedRing(Geometry geometry, QueueMemory memory)
      : geometry_(geometry),
        mask_((std::uint32_t{1} << geometry.counter_bits) - 1),
        place_mask_(geometry.collapsed ? 0 : (std::uint32_t{1} << geometry.log_count) - 1),
        room_(geometry.overrun_ignore || geometry.collapsed
                  ? UINT32_MAX
                  : std::uint32_t{1} << geometry.log_count),
        memory_(std::move(memory)) {}

  const Geometry& geometry() const { return geometry_; }
  const QueueMemory& memory() const { return memory_; }
  std::uint32_t size() const { return std::uint32_t{1} << geometry_.log_count; }
  std::uint32_t mask() const { return mask_; }
  std::uint32_t producer() const { return producer_; }
  /// The consumer index that software last reported.
  std::uint32_t consumer() const { return consumer_; }
  void set_consumer(std::uint32_t counter) { consumer_ = counter & mask(); }

  /// True if one more entry would overrun software, by its last reported consumer. `ahead`: entries
  /// still to be written before that one.
  bool full(std::uint32_t ahead = 0) const {
    return ((producer_ + ahead - consumer_) & mask_) >= room_;
  }
  /// The number of completed laps modulo 2: the owner bit of the next entry, in documents that have
  /// one.
  std::uint32_t lap() const { return (producer_ >> geometry_.log_count) % 2; }

  /// True if the entry `ahead` of the next one falls on slot 0.
  bool goes_round(std::uint32_t ahead) const { return ((producer_ + ahead) & place_mask_) == 0; }

  /// Continues in other memory with 2^log_count entries (resize). The counters go on. @pre as for
  /// the constructor
  void move(unsigned log_count, QueueMemory memory) {
    auto geometry = geometry_;
    geometry.log_count = log_count;
    PublishedRing moved(geometry, std::move(memory));
    moved.producer_ = producer_;
    moved.consumer_ = consumer_;
    *this = std::move(moved);
  }

  /// Writes the next entry, its last four bytes after all others. False if the memory is gone; then
  /// nothing has been published. @pre entry.size() is a multiple of 4, at most the stride
  bool publish(std::span<const std::byte> entry);
  /// Fast path of publish(), for entries of a fixed size in a ring that is one piece of local
  /// memory. If the ring is not, returns false and changes nothing.
  template <std::size_t Size>
  bool publish_fast(std::span<const std::byte, Size> entry) {
    static_assert(Size % kDword == 0);
    auto* const to = memory_.at(place(Size), Size);
    if (to == nullptr) return false;
    publish_at(to, entry);
    return true;
  }

  /// Writes to the slot `ahead` of the next entry. Software does not see it before pass(). False if
  /// the memory is gone. @pre as for publish()
  bool put(std::uint32_t ahead, std::span<const std::byte> entry) {
    return memory_.write(place(entry.size(), ahead), entry);
  }
  /// Hands `places` more slots to software. An entry published earlier makes software their owner.
  void pass(std::uint32_t places) { producer_ = (producer_ + places) & mask_; }

  /// The signed distance a - b of two counters.
  std::int32_t distance(std::uint32_t a, std::uint32_t b) const {
    const unsigned unused = 32 - geometry_.counter_bits;
    return static_cast<std::int32_t>((a - b) << unused) >> unused;
  }

 private:
  static constexpr std::size_t kDword = sizeof(std::uint32_t);

  /// Byte offset of the entry `ahead` of the next one, for an entry of `size` bytes.
  std::uint64_t place(std::size_t size, std::uint32_t ahead = 0) const {
    return std::uint64_t{(producer_ + ahead) & place_mask_} * geometry_.stride + geometry_.stride -
           size;
  }
  [[gnu::always_inline]] void publish_at(std::byte* to, std::span<const std::byte> entry) {
    const auto body = entry.size() - kDword;
    std::memcpy(to, entry.data(), body);
    std::uint32_t last;
    std::memcpy(&last, entry.data() + body, kDword);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + body), last, __ATOMIC_RELEASE);
    producer_ = (producer_ + 1) & mask_;
  }

  Geometry geometry_;
  std::uint32_t mask_ = 0;        ///< of both counters
  std::uint32_t place_mask_ = 0;  ///< maps the producer to its slot
  std::uint32_t room_ = 0;        ///< entries that may wait for software; UINT32_MAX: no limit
  std::uint32_t producer_ = 0;
  std::uint32_t consumer_ = 0;
  QueueMemory memory_;
};

}  // namespace softhca::hca
