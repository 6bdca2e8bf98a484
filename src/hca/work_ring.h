// Work queues in host memory: cyclic ones, whose entries follow each other, and chains, whose
// entries name the next.
#pragma once

#include <cstdint>
#include <span>

#include "hca/posted_counter.h"
#include "hca/queue_memory.h"

namespace softhca::hca {

/// Entries of one size, used in turn, in a part of a queue's memory.
class WorkRing : public PostedCounter {
 public:
  struct Geometry {
    std::uint64_t offset = 0;   ///< of entry 0 in the memory, bytes
    unsigned log_stride = 6;    ///< bytes of an entry
    unsigned log_count = 0;     ///< entries, at most 2^15
    unsigned record_dword = 0;  ///< of the doorbell record
  };

  explicit WorkRing(Geometry geometry)
      : PostedCounter(std::uint32_t{1} << geometry.log_count, geometry.record_dword),
        offset_(geometry.offset),
        log_stride_(geometry.log_stride) {}

  std::uint32_t stride() const { return std::uint32_t{1} << log_stride_; }  ///< bytes

  /// Copies out.size() bytes from the start of the entry `skip` places after the next; wraps at the
  /// end of the ring. False if the memory is gone. @pre the ring holds that many bytes
  bool read(QueueMemory& memory, std::uint32_t skip, std::span<std::byte> out) const;
  /// The first `length` bytes of the next entry where they lie. Null if they are not in one piece
  /// of local memory: read() them then. @pre length <= stride()
  const std::byte* at_next(QueueMemory& memory, std::uint32_t length) const {
    return memory.at(offset_ + next_place(), length);
  }
  /// The same for several entries, which may lie at the end of the ring and at its begin.
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
/// the entry. Counted like a ring's.
class WorkChain : public PostedCounter {
 public:
  /// 2^log_count entries of 2^log_stride bytes; entry 0 is the first.
  WorkChain(unsigned log_count, unsigned log_stride, unsigned record_dword)
      : PostedCounter(std::uint32_t{1} << log_count, record_dword), log_stride_(log_stride) {}

  std::uint32_t stride() const { return std::uint32_t{1} << log_stride_; }  ///< bytes
  /// The place of the entry to consume next.
  std::uint32_t next() const { return next_; }

  /// Copies the first out.size() bytes of the next entry. False if the memory is gone.
  /// @pre out.size() <= stride()
  bool read(QueueMemory& memory, std::span<std::byte> out) const {
    return memory.read(std::uint64_t{next_} << log_stride_, out);
  }
  /// Consumes the next entry, after which `successor` is. @pre successor < size(), one is known
  void advance(std::uint32_t successor) {
    next_ = successor;
    consume(1);
  }

 private:
  unsigned log_stride_;
  std::uint32_t next_ = 0;
};

}  // namespace softhca::hca
