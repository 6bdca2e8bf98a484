// The types of the verbs (IBTA 10 and 11) as plain values, the same for every HCA.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "driver/access.h"
#include "driver/address.h"
#include "driver/work.h"
#include "spec/infiniband/constants.h"
#include "spec/infiniband/qp_states.h"
#include "spec/infiniband/services.h"
#include "util/result.h"

namespace softhca::driver::verbs {

using spec::infiniband::QpAttributeSet;
using spec::infiniband::QpState;
using spec::infiniband::QpType;
using spec::infiniband::to_string;

/// Features that an HCA may lack. All HCAs with a softhca driver have the rest: RC and UD queue
/// pairs, SEND, RDMA WRITE and READ, immediate and inline data, events, the state SQD.
enum class Feature : std::uint8_t {
  kUc,                   ///< unreliable connections
  kXrc,                  ///< XRC queue pairs and their shared receive queues
  kAtomics,              ///< compare and swap, fetch and add
  kSharedReceiveQueues,  ///< SRQs for RC and UD
  kReceiveLimit,         ///< the event of an SRQ with fewer requests than its limit
  kMulticast,
  kRoceV1,
  kSolicited,  ///< events only for messages that request one
};
inline constexpr std::size_t kFeatures = 8;
std::string_view to_string(Feature feature);

/// The reason why a device lacks a feature.
struct Limitation {
  Feature feature;
  std::string_view words;
  std::string_view section;  ///< of the device's document
};

struct DeviceAttributes {
  std::string model;     ///< "ConnectX-4"
  std::string firmware;  ///< "12.28.2006"
  Mac mac;
  /// The port's LID on InfiniBand, as of the last Device::link_is_up(); 0: none assigned yet.
  std::uint16_t lid = 0;
  std::uint64_t max_message = 0;  ///< bytes
  std::uint32_t max_mtu = 0;      ///< bytes of a packet's payload
  std::uint32_t max_qps = 0;
  std::uint32_t max_cqs = 0;
  std::uint32_t max_mrs = 0;
  std::uint32_t max_srqs = 0;
  std::uint32_t max_requests = 0;  ///< per queue; fewer if they are large
  std::uint32_t max_pieces = 0;    ///< per request
  std::uint32_t max_cq_entries = 0;
  std::uint32_t max_reads = 0;  ///< READs and atomics under way, per queue pair
  /// Bytes in front of a received datagram: the GRH, or the IP header in their last bytes (IBTA
  /// 11.4.1.2, Annex A17); 0 if a device writes none. A receive must have room for them;
  /// Completion::byte_count counts them.
  std::uint32_t datagram_header = 40;
  std::span<const Limitation> limitations = {};

  /// Null if the device has the feature.
  const Limitation* lacks(Feature feature) const;
};

/// Succeeds if the device has `feature`; else fails with the reason.
util::Result<void> require(const DeviceAttributes& device, Feature feature);

/// The path to a port: an address vector (IBTA 11.2.2.1).
struct Path {
  Gid gid = {};                       ///< of the destination port
  Mac mac = {};                       ///< of the next hop, on RoCE
  std::uint16_t lid = 0;              ///< of the destination port, on InfiniBand
  std::uint8_t source_gid_index = 0;  ///< the sender's GID
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  ///< 20 bits
  std::uint8_t service_level = 0;
  std::uint16_t udp_source_port = spec::infiniband::kUdpSourcePort;
};

/// Attributes of MODIFY QP; absent ones do not change. Names and numbers of IBTA 11.2.4.2.
struct QpAttributes {
  std::optional<QpState> state = {};
  std::optional<QpState> current_state = {};
  std::optional<RemoteAccess> access = {};
  std::optional<std::uint16_t> pkey_index = {};
  std::optional<std::uint8_t> port = {};
  std::optional<std::uint32_t> qkey = {};
  std::optional<Path> path = {};
  std::optional<unsigned> path_mtu = {};     ///< 256, 512, 1024, 2048 or 4096 bytes
  std::optional<std::uint8_t> timeout = {};  ///< 4.096 us * 2^n; 0: no timeout
  std::optional<std::uint8_t> retry_count = {};
  std::optional<std::uint8_t> rnr_retry = {};      ///< 7: no limit
  std::optional<std::uint32_t> receive_psn = {};   ///< of the first packet to be received
  std::optional<std::uint32_t> send_psn = {};      ///< of the first packet to be sent
  std::optional<unsigned> max_reads = {};          ///< READs and atomics under way as requester
  std::optional<unsigned> max_peer_reads = {};     ///< READs and atomics under way as responder
  std::optional<std::uint8_t> min_rnr_timer = {};  ///< the code of IBTA 9.7.5.2.8
  std::optional<std::uint32_t> destination_qpn = {};

  /// The set of attributes that are present.
  QpAttributeSet given() const;
};

/// The code of a path MTU in bytes (IBTA 9.7.6); 0 if there is none.
std::uint8_t mtu_code(unsigned bytes);

/// Capacity of a queue pair's queues.
struct Capacity {
  unsigned send_requests = 64;
  unsigned send_pieces = 4;        ///< per request
  unsigned inline_size = 64;       ///< bytes per request
  unsigned receive_requests = 64;  ///< unused with a shared receive queue
  unsigned receive_pieces = 4;     ///< per request
};

/// Asynchronous events (IBTA 11.6.3).
enum class AsyncEventType : std::uint8_t {
  kCommunicationEstablished,  ///< the first packet arrived in RTR
  kSqDrained,
  kLastWqeReached,  ///< of a queue pair with an SRQ, in ERR
  kQpFatal,         ///< its queue cannot be read
  kQpRequestError,  ///< the peer sent a request that is invalid
  kQpAccessError,   ///< the peer sent a request that is not permitted
  kCqError,         ///< overrun
  kSrqLimitReached,
  kSrqFatal,
  kPortActive,
  kPortDown,
  kOther,  ///< an event type that the driver does not know
};
std::string_view to_string(AsyncEventType type);

struct AsyncEvent {
  AsyncEventType type = AsyncEventType::kOther;
  std::uint32_t number = 0;  ///< of the QP, CQ, SRQ or port; for kOther the type
};

/// The rule of IBTA 11.2.4.2 Tables 90 to 92 that MODIFY QP with these attributes violates, as
/// text; empty if none.
std::string check_transition(QpType type, QpState from, QpState to, QpAttributeSet given);

}  // namespace softhca::driver::verbs
