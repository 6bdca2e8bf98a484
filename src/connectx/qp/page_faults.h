// Reports page faults to the driver (mlx5 driver interface 7.12).
#pragma once

#include <cstddef>
#include <optional>

#include "connectx/base/numbers.h"
#include "connectx/event/event_queue.h"
#include "rdma/page_fault.h"

namespace softhca::connectx {

/// The open faults of all QPs and DCTs.
class PageFaults {
 public:
  /// The queue that has a fault.
  struct Place {
    Qpn number;                ///< number of the QP or DCT: the token
    std::optional<Srqn> srqn;  ///< its SRQ, if it does not have its own receive queue
  };

  explicit PageFaults(EventQueues& event_queues) : event_queues_(event_queues) {}

  /// Posts the event of a fault. The fault is open if the answer is kOpened.
  rdma::FaultAnswer open(const rdma::PageFault& fault, const Place& place);
  /// An open fault is over.
  void close() { --open_; }

 private:
  EventQueues& event_queues_;
  std::size_t open_ = 0;
};

}  // namespace softhca::connectx
