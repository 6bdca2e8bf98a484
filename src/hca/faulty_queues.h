// The posted requests of a QP while there are fault rules: between the transport and the device's
// own queues. Without rules the transport fetches from those directly, so QPs pay nothing.
#pragma once

#include <memory>
#include <string_view>

#include "hca/faults.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"

namespace softhca::hca {

class FaultyQueues final : public rdma::PostedRequests {
 public:
  struct Parts {
    const FaultHook& faults;
    rdma::QueuePair& qp;
    rdma::PostedRequests& queues;  ///< the device's own
    /// The name of a request's opcode, as rules have it.
    std::string_view (*opcode_of)(const rdma::SendRequest& request);
  };

  /// From now on the transport fetches from this object.
  explicit FaultyQueues(const Parts& parts);

  /// Called after a change of the rules. True if a request that was held back goes on: the
  /// transport must be notified. If there are no rules any more, the transport fetches from the
  /// device's own queues.
  bool follow_rules();
  /// 2RST: drops the request that is held back.
  void reset() { held_.reset(); }

 private:
  struct Held {
    rdma::SendRequest request;
    FaultId rule;
  };

  rdma::Fetch fetch_send(rdma::SendRequest& request) override;
  void restart_send() override;
  rdma::WorkStatus failed_status() const override { return failed_; }
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) override;

  bool executes() const;
  rdma::Fetch inject(rdma::SendRequest& request, rdma::Fetch fetched);
  void step_aside_if_unused();

  Parts parts_;
  std::unique_ptr<Held> held_;  ///< the request that is held back, or is to go on
  rdma::WorkStatus failed_ = rdma::WorkStatus::kSuccess;
};

}  // namespace softhca::hca
