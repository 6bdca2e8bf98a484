// The counters of a work queue: WQEs posted by software, and WQEs consumed by the device.
#pragma once

#include <cstdint>
#include <optional>

#include "hca/doorbell_record.h"

namespace softhca::hca {

/// Two 16-bit counters that wrap around. Software writes the producer counter to a doorbell record.
/// The device reads it only when it has consumed every entry it knows of.
class PostedCounter {
 public:
  /// `size`: entries of the queue, at most 2^15. `record_dword`: the counter's dword in the record.
  PostedCounter(std::uint32_t size, unsigned record_dword)
      : size_(size), record_dword_(record_dword) {}

  /// Entries of the queue.
  std::uint32_t size() const { return size_; }
  /// Counter of the next entry to consume.
  std::uint16_t consumed() const { return consumed_; }
  /// Entries known to be posted and not yet consumed.
  std::uint32_t known() const { return static_cast<std::uint16_t>(posted_ - consumed_); }

  /// Entries posted and not yet consumed. Nothing if the record is gone, or if its counter is ahead
  /// by more than the queue's size.
  std::optional<std::uint32_t> available(DoorbellRecord& record) {
    return posted_ == consumed_ ? refresh(record) : known();
  }
  /// For a queue with a doorbell: reads the record only if the doorbell has rung since the last
  /// read or since reset(). Before that, the record may still hold the counter of the queue's
  /// earlier life. False on the failures of refresh().
  bool look(DoorbellRecord& record) { return !rung_ || refresh(record).has_value(); }
  /// The doorbell has rung, so software has updated the record.
  void handle_doorbell() {
    rung_ = true;
    stale_ = 0;
  }
  /// The next look() reads the record.
  void look_again() { rung_ = true; }
  /// For a queue that is also polled without its doorbell: what the record holds now is from the
  /// queue's earlier life. It counts as 0 until it changes or the doorbell rings.
  void disregard(DoorbellRecord& record) { stale_ = record.read(record_dword_).value_or(0); }
  /// Same as available(), but always reads the record.
  std::optional<std::uint32_t> refresh(DoorbellRecord& record);
  /// True if the record holds a valid counter that the device has not read yet.
  bool has_news(DoorbellRecord& record) const;

  /// @pre at least `entries` are known
  void consume(std::uint32_t entries) {
    consumed_ = static_cast<std::uint16_t>(consumed_ + entries);
  }
  /// Sets both counters to 0. The record is not read until the next available(), or the doorbell.
  void reset() {
    consumed_ = posted_ = 0;
    stale_ = 0;
    rung_ = false;
  }

 private:
  std::uint32_t size_;
  unsigned record_dword_;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;  ///< value at the last read of the record
  std::uint32_t stale_ = 0;   ///< value of the record that counts as 0
  bool rung_ = false;         ///< the doorbell has rung since that read
};

}  // namespace softhca::hca
