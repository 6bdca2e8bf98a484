// Delivers frames from the wire to receive queues: classification, steering, RSS, and the fields of
// a CQE that describe a frame (PRM 3.3, 7.5, 7.11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"
#include "ethernet/flow_headers.h"
#include "ethernet/packet_info.h"
#include "hca/object_table.h"
#include "util/clock.h"
#include "wire/frame.h"

namespace softhca::connectx {

class NetworkPort;

class EthReceiver {
 public:
  struct Parts {
    rdma::KeyTable& keys;  ///< charged for lookups and copies beyond the cost of one frame
    FlowSteering& steering;
    hca::ObjectTable<Tir, Tirn>& tirs;
    NetworkPort& port;
    std::vector<Rqn>& failed;  ///< receives each RQ that a frame moves to the error state
  };

  explicit EthReceiver(const Parts& parts) : parts_(parts), flows_(kFlows), by_id_(kFlows) {}

  void receive(const wire::Frame& frame, util::Time now);
  /// Fast path of receive() for a frame of a cached flow, whose frames go to one RQ. False, with no
  /// effect, if no cached flow matches. @pre as FlowHeaders::hash
  bool receive_fast(const wire::Frame& frame, util::Time now);
  /// Drops all cached flows. Call it when steering, TIRs, RQTs or RQs may have changed.
  void invalidate_flows() { ++generation_; }
  /// Copies a received or sent frame to the TIRs that the sniffer tables of this type choose (PRM
  /// 3.5).
  void sniff(FlowSteering::Type type, const wire::Frame& frame, util::Time now);
  /// Receives a frame that a TIS of transport domain `domain` has sent (PRM 3.4). False if no TIR
  /// accepts it.
  bool receive_looped(const wire::Frame& frame, TransportDomain domain, util::Time now);

 private:
  using Cqe = std::array<std::byte, spec::connectx::cqe64::kSize>;
  /// A cached flow. Its frames have the same values in all header fields that a FlowHeaders
  /// compares, and go to the same RQ.
  struct Flow {
    std::uint64_t generation = 0;  ///< generation_ when the flow was cached
    ethernet::FlowHeaders header;
    ReceiveQueue* rq = nullptr;
    ReceivedFrame received;  ///< template without the frame
    Cqe cqe;                 ///< template: the fields that are equal in all CQEs
    Cqe finished_cqe;        ///< template for frames with `id`
    bool has_id = false;     ///< `id` is enough to identify frames of FlowHeaders::finish()
    wire::FlowId id = 0;     ///< of such frames; 0: unknown
  };
  static constexpr std::size_t kFlows = 64;

  FlowSteering::Search steer(FlowSteering::Type type, const wire::Frame& frame,
                             const ethernet::PacketInfo& packet);
  /// Part of receive_fast() for a frame with the flow's id.
  void receive_finished(Flow& flow, const wire::Frame& frame, util::Time now);
  void note_id(Flow& flow, wire::FlowId id);
  void remember(const wire::Frame& frame, const ethernet::PacketInfo& packet, bool tcp_flags);
  /// Returns the frame with all its bytes. If its ICRC was deferred, returns a copy with the ICRC.
  const wire::Frame& whole(const wire::Frame& arrived);
  void deliver(const wire::Frame& frame, const ethernet::PacketInfo& packet, util::Time now,
               bool is_copy);
  void write_to(ReceiveQueue& rq, const ReceivedFrame& received,
                util::MutableView<spec::connectx::cqe64> cqe);
  /// Chooses the RQ of a TIR.
  static ReceiveQueue& choose_queue(const Tir& tir, const ethernet::PacketInfo& packet,
                                    ReceivedFrame& received);

  Parts parts_;
  std::vector<FlowSteering::Delivery> deliveries_;
  ScatterScratch scratch_;
  std::vector<Flow> flows_;   ///< by hash of their headers
  std::vector<Flow*> by_id_;  ///< by the id of their finished frames
  std::uint64_t generation_ = 1;
  wire::Frame whole_;  ///< copy of a frame whose ICRC was deferred
};

}  // namespace softhca::connectx
