// From frames on the wire to receive queues: classification, steering, receive side scaling, and
// what CQEs tell of a frame (PRM 3.3, 7.5, 7.11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"
#include "ethernet/known_header.h"
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

  explicit EthReceiver(const Parts& parts) : parts_(parts), flows_(kFlows), numbered_(kFlows) {}

  void receive(const wire::Frame& frame, util::Time now);
  /// The same for a frame of a flow that is known: its headers are like those of one that went to
  /// one RQ. False, and nothing has happened, if it is of none. @pre as KnownHeader::hash
  bool receive_known(const wire::Frame& frame, util::Time now);
  /// Steering, TIRs, RQTs or RQs may have changed.
  void forget_flows() { ++generation_; }
  /// A copy of a frame that was received or sent, for whom sniffer tables of this type choose
  /// (PRM 3.5).
  void sniff(FlowSteering::Type type, const wire::Frame& frame, util::Time now);
  /// A frame that a TIS of transport domain `domain` has sent (PRM 3.4). False if no TIR takes it.
  bool receive_looped(const wire::Frame& frame, TransportDomain domain, util::Time now);

 private:
  /// Frames whose headers agree in all that a KnownHeader compares go to the same RQ.
  using Cqe = std::array<std::byte, spec::connectx::cqe64::kSize>;
  struct KnownFlow {
    std::uint64_t generation = 0;  ///< of what it rests on
    ethernet::KnownHeader header;
    ReceiveQueue* rq = nullptr;
    ReceivedFrame received;    ///< but for the frame
    Cqe cqe;                   ///< as far as it is always the same
    Cqe finished_cqe;          ///< of frames with the number
    bool numerable = false;    ///< frames that KnownHeader::finish() made differ in little
    std::uint64_t number = 0;  ///< that one of them had; 0: none yet
  };
  static constexpr std::size_t kFlows = 64;

  FlowSteering::Search steer(FlowSteering::Type type, const wire::Frame& frame,
                             const ethernet::PacketInfo& packet);
  /// receive_known() of a frame that has the number of the flow's.
  void receive_finished(KnownFlow& flow, const wire::Frame& frame, util::Time now);
  void note_number(KnownFlow& flow, std::uint64_t number);
  void remember(const wire::Frame& frame, const ethernet::PacketInfo& packet, bool tcp_flags);
  /// What an arrived frame is; its own copy where software wants bytes that are not there yet.
  const wire::Frame& whole(const wire::Frame& arrived);
  void deliver(const wire::Frame& frame, const ethernet::PacketInfo& packet, util::Time now);
  void write_to(ReceiveQueue& rq, const ReceivedFrame& received,
                util::MutableView<spec::connectx::cqe64> cqe);
  /// Through the TIR to one RQ.
  static ReceiveQueue& choose_queue(const Tir& tir, const ethernet::PacketInfo& packet,
                                    ReceivedFrame& received);

  Parts parts_;
  std::vector<FlowSteering::Delivery> deliveries_;
  ScatterScratch scratch_;
  std::vector<KnownFlow> flows_;      ///< by hash of their headers
  std::vector<KnownFlow*> numbered_;  ///< by the number of their headers
  std::uint64_t generation_ = 1;
  wire::Frame whole_;  ///< copy of a frame whose ICRC was still to be computed
};

}  // namespace softhca::connectx
