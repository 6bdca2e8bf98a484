// From frames on the wire to receive queues: classification, steering, receive side scaling, and
// what CQEs tell of a frame (PRM 3.3, 7.5, 7.11).
#pragma once

#include <utility>
#include <vector>

#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"
#include "ethernet/packet_info.h"
#include "hca/object_table.h"
#include "util/clock.h"
#include "wire/frame.h"

namespace softhca::connectx {

class NetworkPort;

class EthReceiver {
 public:
  struct Parts {
    rdma::KeyTable& keys;  ///< gets the work beyond one frame's due, of lookup and copies
    FlowSteering& steering;
    hca::ObjectTable<Tir, Tirn>& tirs;
    NetworkPort& port;
    std::vector<Rqn>& failed;  ///< gets each RQ that a frame has taken to the error state
  };

  explicit EthReceiver(const Parts& parts) : parts_(parts) {}

  void receive(const wire::Frame& frame, util::Time now);
  /// A frame that a TIS of transport domain `domain` has sent (PRM 3.4). False if no TIR takes it.
  bool receive_looped(const wire::Frame& frame, TransportDomain domain, util::Time now);

 private:
  void steer(const ethernet::PacketInfo& packet);
  /// What an arrived frame is; its own copy where software wants bytes that are not there yet.
  const wire::Frame& whole(const wire::Frame& arrived);
  void deliver(const wire::Frame& frame, const ethernet::PacketInfo& packet, util::Time now);
  /// Through the TIR to one RQ.
  static ReceiveQueue& choose_queue(const Tir& tir, const ethernet::PacketInfo& packet,
                                    ReceivedFrame& received);

  Parts parts_;
  std::vector<FlowSteering::Delivery> deliveries_;
  ScatterScratch scratch_;
  wire::Frame whole_;  ///< copy of a frame whose ICRC was still to be computed
};

}  // namespace softhca::connectx
