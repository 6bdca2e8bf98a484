// Doorbell records are the truth, stores to doorbell pages are hints (host-door contract 12): the
// pages that programs have are plain memory and keep the last store alone, so what is posted and
// armed is found by looking at the records of all live queues again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/host.h"

namespace softhca::uverbs {

class RecordScan {
 public:
  explicit RecordScan(driver::Host& host) : host_(host) {}

  /// A send queue in a state in which its doorbell counts, with nothing posted (rule D2). `record`:
  /// the dword of its counter, big-endian, in the program's memory.
  void add_send_queue(std::uint32_t qpn, std::uint32_t uar, const std::uint32_t* record);
  /// When this returns, its record is not looked at any more (rule D4).
  void remove_send_queue(std::uint32_t qpn);
  /// `arm`: the dword of the record that arms it, which becomes the sentinel (rule A1).
  void add_completion_queue(std::uint32_t cqn, std::uint32_t uar, std::uint32_t* arm);
  void remove_completion_queue(std::uint32_t cqn);

  /// Nothing is looked at.
  bool empty() const { return send_queues_.empty() && completion_queues_.empty(); }
  /// Rings for what is new. True if there was anything.
  bool scan();

 private:
  struct SendQueue {
    std::uint32_t qpn;
    const std::uint32_t* record;
    std::uint64_t doorbell;  ///< offset in the BAR
    std::uint32_t last;      ///< as in the record
  };
  struct CompletionQueue {
    std::uint32_t cqn;
    std::uint32_t* arm;
    std::uint64_t doorbell;
  };
  /// Bits 31 and 30 of an arm word are never used.
  static constexpr std::uint32_t kNotArmed = 0xffffffff;

  void ring(std::uint64_t doorbell, std::uint32_t first, std::uint32_t second);

  driver::Host& host_;
  std::vector<SendQueue> send_queues_;
  std::vector<CompletionQueue> completion_queues_;
};

}  // namespace softhca::uverbs
