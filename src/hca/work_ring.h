// Work queues in host memory: rings, whose entries follow each other, and chains, whose entries
// name their successor.
#pragma once

#include <cstdint>
#include <span>

#include "hca/posted_counter.h"
#include "hca/queue_memory.h"

namespace softhca::hca {

/// Entries of one size, consumed in ring order, in a part of a queue's memory.
class WorkRing : public PostedCounter {
 public:
  struct Geometry {
    std::uint64_t offset = 0;   ///< byte offset of entry 0 in the memory
    unsigned log_stride = 6;    ///< log2 of an entry's bytes
    unsigned log_count = 0;     ///< log2 of the entries, at most 15
    unsigned record_dword = 0;  ///< dword of the doorbell record with the producer counter
  };

  explicit WorkRing(Geometry geometry)
      : PostedCounter(std::uint32_t{1} << geometry.log_count, geometry.record_dword),
        offset_(geometry.offset),
        log_stride_(geometry.log_stride) {}

  std::uint32_t stride() const { return std::uint32_t{1} << log_stride_; }  ///< bytes

  /// Copies out.size() bytes from the start of the entry `skip` entries after the next, and wraps
  /// at the end of the ring. False if the memory is gone. @pre the ring holds that many bytes
  bool read(QueueMemory& memory, std::uint32_t skip, std::span<std::byte> out) const;
  /// Address of the first `length` bytes of the next entry. Null if they are not one piece of local
  /// memory; then use read(). @pre length <= stride()
  const std::byte* at_next(QueueMemory& memory, std::uint32_t length) const {
    return memory.at(offset_ + next_place(), length);
  }
  /// The same for several entries. Null also if they wrap around the end of the ring.
  const std::byte* entries_at_next(QueueMemory& memory, std::uint32_t length) const {
    const bool wraps = next_place() + length > std::uint64_t{size()} << log_stride_;
    return wraps ? nullptr : memory.at(offset_ + next_place(), length);
  }

 private:
  std::uint64_t next_place() const {
    return static_cast<std::uint64_t>(consumed() & (size() - 1)) << log_stride_;
  }

  std::uint64_t offset_;
  unsigned log_stride_;
};

/// Entries of one size in any order: each names its successor, which software links before it posts
/// the entry. Counters work as in a ring.
class WorkChain : public PostedCounter {
 public:
  /// 2^log_count entries of 2^log_stride bytes; entry 0 is the first.
  WorkChain(unsigned log_count, unsigned log_stride, unsigned record_dword)
      : PostedCounter(std::uint32_t{1} << log_count, record_dword), log_stride_(log_stride) {}

  std::uint32_t stride() const { return std::uint32_t{1} << log_stride_; }  ///< bytes
  /// Index of the entry to consume next.
  std::uint32_t next() const { return next_; }

  /// Copies the first out.size() bytes of the next entry. False if the memory is gone.
  /// @pre out.size() <= stride()
  bool read(QueueMemory& memory, std::span<std::byte> out) const {
    return memory.read(std::uint64_t{next_} << log_stride_, out);
  }
  /// Consumes the next entry and continues with `successor`. @pre successor < size(), one entry is
  /// known
  void advance(std::uint32_t successor) {
    next_ = successor;
    consume(1);
  }

 private:
  unsigned log_stride_;
  std::uint32_t next_ = 0;
};

}  // namespace softhca::hca
