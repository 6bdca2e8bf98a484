// Polls doorbell records (kernel interface 12). Records are authoritative; stores to doorbell
// pages are only hints. A program's doorbell page is plain memory that keeps only the last store.
// Therefore the records of all live queues are polled for posted work and arm requests.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/host.h"

namespace softhca::uverbs {

class RecordScan {
 public:
  explicit RecordScan(driver::Host& host) : host_(host) {}

  /// Adds a send queue with nothing posted, in a state in which its doorbell counts (rule D2).
  /// `record`: the big-endian dword of its counter in the program's memory.
  void add_send_queue(std::uint32_t qpn, std::uint32_t uar, const std::uint32_t* record);
  /// After this returns, its record is not read again (rule D4).
  void remove_send_queue(std::uint32_t qpn);
  /// The queue is in RESET: removes it, and sets its record to 0. Hardware reads the record after a
  /// doorbell only, so a program may leave the old counter there (UCX). Here that would be a post.
  void reset_send_queue(std::uint32_t qpn, std::uint32_t* record);
  /// `arm`: the record's arm dword, which is set to the sentinel (rule A1).
  void add_completion_queue(std::uint32_t cqn, std::uint32_t uar, std::uint32_t* arm);
  void remove_completion_queue(std::uint32_t cqn);

  /// Whether no queue is polled.
  bool empty() const { return send_queues_.empty() && completion_queues_.empty(); }
  /// Rings the doorbells of new work. True if there was any.
  bool scan();

 private:
  struct SendQueue {
    std::uint32_t qpn;
    const std::uint32_t* record;
    std::uint64_t doorbell;  ///< offset in the BAR
    std::uint32_t last;      ///< the counter as last read, big-endian
  };
  struct CompletionQueue {
    std::uint32_t cqn;
    std::uint32_t* arm;
    std::uint64_t doorbell;
  };
  /// The sentinel: real arm words never set bits 31 and 30.
  static constexpr std::uint32_t kNotArmed = 0xffffffff;

  void ring(std::uint64_t doorbell, std::uint32_t first, std::uint32_t second);

  driver::Host& host_;
  std::vector<SendQueue> send_queues_;
  std::vector<CompletionQueue> completion_queues_;
};

}  // namespace softhca::uverbs
