// The RDMA side of the device: QPs, SRQs, the RoCE address table, and the transport that serves them.
//
// It translates between what drivers see (QP contexts, WQEs, CQEs, doorbell records, events) and the
// terms of rdma::Transport. The commands that make and change these objects are in commands/.
//
// Receive queues ring no doorbell: software only writes a counter to memory. It is read when a packet
// needs a receive WQE; objects that must notice new WQEs without a packet (a receive queue that flushes, an SRQ with an
// armed limit) are polled by run(), only as long as there are any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "connectx/command.h"
#include "rdma/hca.h"
#include "rdma/transport.h"
#include "util/clock.h"

namespace softhca::connectx {

class Device;
class QueuePair;
class SharedReceiveQueue;

class Rdma : private rdma::Hca {
 public:
  explicit Rdma(Device& device);
  ~Rdma() override;
  Rdma(const Rdma&) = delete;
  Rdma& operator=(const Rdma&) = delete;

  /// Whether a QP has this number. SQs and RQs share the numbers (PRM 7.2.1).
  bool owns(std::uint32_t number) const;

  /// The send doorbell of a QP was rung: there may be new send WQEs.
  void doorbell(std::uint32_t qpn);
  /// False: not a RoCE packet for this device; it is the Ethernet side's. To be asked only while the
  /// vport's roce_en is set.
  bool handle_frame(const wire::Frame& frame, util::Time now);
  /// Does what is due, a bounded amount. Returns when to call again: `now` if work is left.
  util::Time run(util::Time now);

  rdma::Transport& transport() { return transport_; }
  rdma::KeyTable& keys() { return transport_.keys(); }
  rdma::GidTable& gids() { return transport_.gids(); }
  const rdma::PortCounters& counters() const { return transport_.counters(); }

  /// Null for a number that no QP, or no RMP or XRC SRQ, has.
  QueuePair* find_qp(std::uint32_t qpn) const;
  SharedReceiveQueue* find_srq(std::uint32_t srqn) const;

 private:
  rdma::Fetch fetch_send(rdma::QueuePair& qp, rdma::SendRequest& request) override;
  rdma::Fetch fetch_receive(rdma::QueuePair& qp, rdma::ReceiveRequest& request) override;
  void complete_send(rdma::QueuePair& qp, const rdma::SendCompletion& completion) override;
  void complete_receive(rdma::QueuePair& qp, const rdma::ReceiveCompletion& completion) override;
  void handle_event(rdma::QueuePair& qp, rdma::QpEvent event, std::string_view reason) override;

  Device& device_;
  rdma::Transport transport_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;           ///< by QPN
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared_queues_;  ///< by number
};

}  // namespace softhca::connectx
