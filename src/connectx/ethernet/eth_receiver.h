// From frames on the wire to receive queues: classification, steering, receive side scaling, and
// what CQEs tell of a frame (PRM 3.3, 7.5, 7.11).
#pragma once

#include <utility>
#include <vector>

#include "connectx/ethernet/receive_queue.h"
#include "connectx/steering/flow_table.h"
#include "ethernet/packet_info.h"
#include "util/clock.h"
#include "wire/frame.h"

namespace softhca::connectx {

class Device;

class EthReceiver {
 public:
  explicit EthReceiver(Device& device) : device_(device) {}

  void receive(const wire::Frame& frame, util::Time now);
  /// What was done since it was last asked, in units of run()'s budget, beyond one frame's due:
  /// more copies than one, more tables than drivers chain.
  std::size_t take_work() { return std::exchange(work_, 0); }
  /// A frame that a TIS of transport domain `domain` has sent (PRM 3.4). False if no TIR takes it.
  bool receive_looped(const wire::Frame& frame, TransportDomain domain, util::Time now);

 private:
  void steer(const ethernet::PacketInfo& packet);
  /// What an arrived frame is; its own copy where software wants bytes that are not there yet.
  const wire::Frame& whole(const wire::Frame& arrived);
  void deliver(const wire::Frame& frame, const ethernet::PacketInfo& packet, util::Time now);
  /// Through the TIR to one RQ, or null if there is none.
  ReceiveQueue* choose_queue(Tirn tirn, const ethernet::PacketInfo& packet,
                             ReceivedFrame& received);

  Device& device_;
  std::vector<FlowSteering::Delivery> deliveries_;
  std::size_t work_ = 0;
  ScatterScratch scratch_;
  wire::Frame whole_;  ///< copy of a frame whose ICRC was still to be computed
};

}  // namespace softhca::connectx
