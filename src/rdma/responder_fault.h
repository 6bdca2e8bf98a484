// The page fault of a responder (page_fault.h). A reliable responder answers RNR NAK (IBTA
// 9.7.5.2.8). An unreliable one drops packets that it cannot place. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/page_fault.h"
#include "rdma/receive_queue.h"
#include "rdma/request_outcome.h"
#include "rdma/work_queues.h"

namespace softhca::rdma {

class ResponderFault {
 public:
  /// The operation that waits for the page.
  enum class Waiter : std::uint8_t {
    kNone,
    kReceive,  ///< the next expected request, for its receive buffer
    kAccess,   ///< the next expected request, for the memory of its R_Key
    kAnswers,  ///< the oldest answer, and all behind it
  };

  explicit ResponderFault(WorkQueues& queues) : queues_(queues) {}

  bool is_open() const { return waiter_ != Waiter::kNone; }
  Waiter waiter() const { return waiter_; }

  /// Reports a fault to the device. @pre not is_open()
  FaultAnswer open(const PageFault& fault, Waiter waiter);
  /// The outcome of a request whose memory is absent; any other `otherwise` is returned unchanged.
  RequestOutcome hold(const PageFault& fault, const RequestOutcome& otherwise);
  /// `fault` in the request that `receives` has taken, which stays for the retransmitted packet or
  /// ends. `committed`: bytes of the message before this packet, which has `length`.
  RequestOutcome hold_receive(ReceiveQueue& receives, Reason fault, std::uint64_t committed,
                              std::size_t length);
  void close();

 private:
  WorkQueues& queues_;
  Waiter waiter_ = Waiter::kNone;
};

}  // namespace softhca::rdma
