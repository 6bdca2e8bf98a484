// Rings that the device fills and software empties: CQs and EQs.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "hca/queue_memory.h"

namespace softhca::hca {

/// Software polls an entry's last bytes to see whose it is, so those become visible after all
/// others. How it tells is the document's: by a bit that turns over with each lap(), or by a value
/// that it overwrites. How far software has read, it tells by a record or a doorbell.
class PublishedRing {
 public:
  struct Geometry {
    unsigned log_count = 0;      ///< entries
    std::uint32_t stride = 64;   ///< bytes; an entry stands at the end of its stride
    unsigned counter_bits = 24;  ///< of producer and consumer, more than log_count
    bool collapsed = false;      ///< each entry is written over the one before, to the first place
    /// Entries are written whether software has read those in their place or not.
    bool overrun_ignore = false;
  };

  PublishedRing() = default;
  /// @pre the memory has all entries
  PublishedRing(Geometry geometry, QueueMemory memory)
      : geometry_(geometry), memory_(std::move(memory)) {}

  const Geometry& geometry() const { return geometry_; }
  const QueueMemory& memory() const { return memory_; }
  std::uint32_t size() const { return std::uint32_t{1} << geometry_.log_count; }
  std::uint32_t mask() const { return (std::uint32_t{1} << geometry_.counter_bits) - 1; }
  std::uint32_t producer() const { return producer_; }
  /// As software last told.
  std::uint32_t consumer() const { return consumer_; }
  void set_consumer(std::uint32_t counter) { consumer_ = counter & mask(); }

  /// Writing one more would overrun software, as far as it has told.
  bool full() const {
    return !geometry_.overrun_ignore && !geometry_.collapsed &&
           ((producer_ - consumer_) & mask()) >= size();
  }
  /// How often the ring has gone round, modulo 2: the owner bit of the next entry, where documents
  /// have one.
  std::uint32_t lap() const { return producer_ >> geometry_.log_count & 1; }

  /// Writes the next entry, its last four bytes after all others. False if the memory is gone:
  /// nothing has been published then. @pre entry.size() is a multiple of 4, at most the stride
  bool publish(std::span<const std::byte> entry);

  /// The signed distance a - b of two counters.
  std::int32_t distance(std::uint32_t a, std::uint32_t b) const {
    const unsigned unused = 32 - geometry_.counter_bits;
    return static_cast<std::int32_t>((a - b) << unused) >> unused;
  }

 private:
  Geometry geometry_;
  std::uint32_t producer_ = 0;
  std::uint32_t consumer_ = 0;
  QueueMemory memory_;
};

}  // namespace softhca::hca
