// The device's side of a cyclic work queue of a QP: what software has posted, and how far it was
// consumed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "connectx/queue/queue_buffer.h"

namespace softhca::connectx {

/// Entries of one size in a part of a QueueBuffer, used in turn. Software tells how many it has
/// posted with a 16-bit counter in a doorbell record (mlx5 driver interface 8.1); the device reads
/// it only when it has consumed all that it knows of.
class WorkRing {
 public:
  struct Geometry {
    std::uint64_t offset = 0;   ///< of entry 0 in the buffer, bytes
    unsigned log_stride = 6;    ///< bytes of an entry
    unsigned log_count = 0;     ///< entries, at most 2^15
    unsigned record_dword = 0;  ///< of the doorbell record: 0 receive counter, 1 send counter
  };

  explicit WorkRing(Geometry geometry) : geometry_(geometry) {}

  std::uint32_t count() const { return 1u << geometry_.log_count; }
  std::uint32_t stride() const { return 1u << geometry_.log_stride; }
  /// Counter of the next entry to consume; its low bits are the entry's place in the ring.
  std::uint16_t consumed() const { return consumed_; }

  /// Entries that are posted and not consumed. Nothing if the record is gone, or holds a counter
  /// that is further ahead than the ring is long.
  std::optional<std::uint32_t> available(DoorbellRecord& record) {
    if (posted_ == consumed_ && !refresh(record)) return std::nullopt;
    return static_cast<std::uint16_t>(posted_ - consumed_);
  }
  /// True if the record has a good counter that available() has not seen.
  bool has_news(DoorbellRecord& record) const;

  /// Copies out.size() bytes from the start of the entry `skip` places after the next; wraps at the
  /// end of the ring. False if the memory is gone. @pre the ring holds that many bytes
  bool read(QueueBuffer& buffer, std::uint32_t skip, std::span<std::byte> out) const;

  /// @pre `entries` are available
  void consume(std::uint32_t entries) {
    consumed_ = static_cast<std::uint16_t>(consumed_ + entries);
  }
  /// As after 2RST: counters at 0, the record not read until the next available().
  void reset() { consumed_ = posted_ = 0; }

 private:
  bool refresh(DoorbellRecord& record);

  Geometry geometry_;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;  ///< as last read
};

}  // namespace softhca::connectx
