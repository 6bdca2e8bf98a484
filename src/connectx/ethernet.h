// The Ethernet side of the device (PRM 7.7 to 7.11): send queues of the netdev and of raw packet
// QPs, flow steering, RSS and receive queues.
#pragma once

#include <cstdint>
#include <memory>

#include "util/clock.h"
#include "wire/frame.h"

namespace softhca::connectx {

class Device;
class FlowSteering;
class ReceiveQueues;
class ReceiveQueueTables;
class SendQueues;
class TransportInterfaceReceives;
class TransportInterfaceSends;

class Ethernet {
 public:
  explicit Ethernet(Device& device);
  ~Ethernet();
  Ethernet(const Ethernet&) = delete;
  Ethernet& operator=(const Ethernet&) = delete;

  /// True if `sqn` is an SQ. QPs and SQs share one number space.
  bool owns(std::uint32_t sqn) const;
  /// The send doorbell of an SQ was rung (PRM 7.4.4): its WQEs are executed by the next run().
  void doorbell(std::uint32_t sqn);
  /// A frame from the wire that is not RoCE traffic of a QP: steered, hashed, and written to RQs.
  void handle_frame(const wire::Frame& frame, util::Time now);
  /// Executes posted WQEs. Returns when it must be called next: `now` if WQEs are left.
  util::Time run(util::Time now);

  SendQueues& send_queues() { return *send_queues_; }
  ReceiveQueues& receive_queues() { return *receive_queues_; }
  ReceiveQueueTables& rqts() { return *rqts_; }
  TransportInterfaceReceives& tirs() { return *tirs_; }
  TransportInterfaceSends& tiss() { return *tiss_; }
  FlowSteering& steering() { return *steering_; }

 private:
  Device& device_;
  std::unique_ptr<SendQueues> send_queues_;
  std::unique_ptr<ReceiveQueues> receive_queues_;
  std::unique_ptr<ReceiveQueueTables> rqts_;
  std::unique_ptr<TransportInterfaceReceives> tirs_;
  std::unique_ptr<TransportInterfaceSends> tiss_;
  std::unique_ptr<FlowSteering> steering_;
};

}  // namespace softhca::connectx
