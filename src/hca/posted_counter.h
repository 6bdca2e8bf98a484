// How far software has posted WQEs to a queue, and how far the device has consumed them.
#pragma once

#include <cstdint>
#include <optional>

#include "hca/doorbell_record.h"

namespace softhca::hca {

/// Two 16-bit counters that wrap around. Software writes the one of what it has posted into a
/// doorbell record; the device reads it only when it has consumed all that it knows of.
class PostedCounter {
 public:
  /// `size`: entries of the queue, at most 2^15. `record_dword`: where in the record the counter
  /// is.
  PostedCounter(std::uint32_t size, unsigned record_dword)
      : size_(size), record_dword_(record_dword) {}

  /// Entries of the queue.
  std::uint32_t size() const { return size_; }
  /// Counter of the next entry to consume.
  std::uint16_t consumed() const { return consumed_; }
  /// Entries that are known to be posted, and not consumed.
  std::uint32_t known() const { return static_cast<std::uint16_t>(posted_ - consumed_); }

  /// Entries that are posted and not consumed. Nothing if the record is gone, or holds a counter
  /// that is further ahead than the queue is long.
  std::optional<std::uint32_t> available(DoorbellRecord& record) {
    return posted_ == consumed_ ? refresh(record) : known();
  }
  /// Of a queue that has a doorbell: the record is read if that has rung since it was last read, or
  /// since reset(), before which the record belongs to the queue's earlier life. False as
  /// refresh().
  bool look(DoorbellRecord& record) { return !rung_ || refresh(record).has_value(); }
  /// The doorbell has rung: software has written the record before.
  void handle_doorbell() { rung_ = true; }
  /// The same as available(), by a new look at the record in any case.
  std::optional<std::uint32_t> refresh(DoorbellRecord& record);
  /// True if the record has a good counter that the device has not seen.
  bool has_news(DoorbellRecord& record) const;

  /// @pre `entries` are known
  void consume(std::uint32_t entries) {
    consumed_ = static_cast<std::uint16_t>(consumed_ + entries);
  }
  /// Both 0; the record is not read until the next available(), or the doorbell.
  void reset() {
    consumed_ = posted_ = 0;
    rung_ = false;
  }

 private:
  std::uint32_t size_;
  unsigned record_dword_;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;  ///< as last read
  bool rung_ = false;         ///< since then
};

}  // namespace softhca::hca
