// Why a requester sends nothing for now. Internal.
#pragma once

#include <cstdint>

namespace softhca::rdma {

class SendPause {
 public:
  /// True if nothing keeps the requester from sending.
  bool over() const { return why_ == 0; }
  /// True if sent packets will be retransmitted when the pause is over.
  bool repeats() const { return (why_ & (kTimer | kPage)) != 0; }
  /// Until Timer::kRnr expires: the peer was not ready, or the device has no room for a page fault.
  bool for_timer() const { return (why_ & kTimer) != 0; }
  /// Until the device reports that a page is present.
  bool for_page() const { return (why_ & kPage) != 0; }
  /// The request with the page fault. @pre for_page(), or it was so until now
  std::uint64_t fault_entry() const { return fault_entry_; }

  void begin_timer() { why_ |= kTimer; }
  /// Timer::kRnr, too: the QP is rate-limited (congestion.h).
  void begin_rate() { why_ |= kRate; }
  void begin_page(std::uint64_t entry) {
    fault_entry_ = entry;
    why_ |= kPage;
  }
  /// Timer::kRnr has expired.
  void end_timer() { why_ &= kPage; }
  void end_page() { why_ &= ~kPage; }
  void end() { why_ = 0; }

 private:
  enum Why : std::uint8_t { kTimer = 1, kPage = 2, kRate = 4 };

  std::uint64_t fault_entry_ = 0;
  std::uint8_t why_ = 0;  ///< Why bits
};

}  // namespace softhca::rdma
