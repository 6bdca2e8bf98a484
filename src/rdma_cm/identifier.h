// One communication identifier: an rdma_cm_id of the program, and its connection.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <optional>

#include "driver/address.h"
#include "rdma_cm/management_port.h"
#include "util/clock.h"

namespace softhca::rdma_cm {

class Channel;

inline constexpr std::uint8_t kMtu4096 = 5;     ///< ib_mtu
inline constexpr std::uint16_t kFamilyIb = 27;  ///< AF_IB

/// sockaddr_ib of <infiniband/ib.h>, big-endian. The GID has the offset of an IPv6 address in
/// sockaddr_in6.
struct IbAddress {
  std::uint16_t family, pkey;
  std::uint32_t flow_info;
  std::uint8_t gid[16];
  std::uint64_t service, service_mask, scope;
};

/// A socket address of IPv4, IPv6 or InfiniBand.
struct SocketAddress {
  sockaddr_storage storage{};

  std::uint16_t family() const { return storage.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  /// Bytes of the address as programs get it; 0: no address.
  std::uint16_t size() const;
  /// Whether it contains a GID: IPv6 and InfiniBand do.
  bool has_gid() const { return family() == AF_INET6 || family() == kFamilyIb; }
  /// 0.0.0.0 or ::.
  bool is_any() const;
  bool is_loopback() const;
  /// Whether no device has the address. Linux treats loopback like the any address (cma_any_addr).
  bool is_of_no_device() const { return is_any() || is_loopback(); }
  bool is_multicast() const;
  /// Only IPv4 has a broadcast address.
  bool is_broadcast() const;
  /// Whether it has the form ::ffff:a.b.c.d.
  bool is_mapped() const;
  /// Whether it is link-local without an interface.
  bool lacks_scope() const;
  /// Takes the interface of another address, if both are IPv6.
  void take_scope(const SocketAddress& other);
  /// As a GID: IPv4 becomes ::ffff:a.b.c.d.
  driver::Gid gid() const;
  static SocketAddress of(const driver::Gid& gid, std::uint16_t port);
  /// 0.0.0.0 or ::, port 0.
  static SocketAddress any(std::uint16_t family);
};

/// The states in order of a connection's life, with the names of IBTA 12.9. Before kReqSent there
/// is no connection. An MRA changes no state here, only the time of the next retransmission.
enum class State : std::uint8_t {
  kIdle,  ///< or bound
  kListening,
  kResolving,      ///< waiting for the network to resolve the destination
  kResolved,       ///< the destination's address is resolved
  kRouteResolved,  ///< the path is resolved too
  kReqSent,        ///< or SIDR_REQ
  kReqRcvd,        ///< or SIDR_REQ; the program has not answered yet
  kRepSent,
  kRepRcvd,
  kEstablished,
  kDreqSent,
  kDreqRcvd,  ///< the program has not disconnected yet
  kTimeWait,  ///< its packets may still be in flight
  kOver,
};

/// A message that is retransmitted until it is answered.
struct Repeated {
  Mad mad{};
  unsigned tries_left = 0;
  util::Duration interval{};
  util::Time next = util::kNever;
  bool was_told_to_wait = false;  ///< by an MRA, since it was last sent
};

/// One of this host's addresses, and the port that has it.
struct LocalAddress {
  unsigned port = 0;           ///< port index
  std::uint8_t gid_index = 0;  ///< in the port's GID table
  driver::Gid gid;
};

/// The path attributes of a connection's packets.
struct Path {
  std::uint8_t mtu = kMtu4096;  ///< ib_mtu
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t ack_timeout = 0;  ///< of the QP: 4.096 us * 2^n (IBTA 9.7.6.1.3)
};

/// The claim of an identifier to its source address.
struct Binding {
  bool bound = false;         ///< by the program
  bool owns_port = false;     ///< it has claimed its port number; never for AF_IB addresses
  bool reuses_port = false;   ///< shares its port with others that have this set, until one listens
  bool one_family = false;    ///< the other IP version may use the same port number
  bool chose_family = false;  ///< the program has set one_family
};

/// The route to the peer, and its resolution.
struct Route {
  bool has_path = false;
  Path path;
  std::optional<std::uint8_t> wanted_ack_timeout, wanted_tos;  ///< set by the program
  util::Time resolve_until = util::kNever;                     ///< kResolving
  util::Time ask_next = util::kNever;
};

/// The exchange of messages that makes a connection (IBTA 12.6, 12.9).
struct MessageExchange {
  std::uint32_t local_comm_id = 0, remote_comm_id = 0;
  std::uint64_t transaction = 0;
  std::uint64_t service = 0;
  std::uint8_t repeats_max = 0;       ///< retransmissions of each of its messages
  util::Duration response_timeout{};  ///< interval between two of them
  Repeated repeated;
};

/// The attributes of a connection that the messages carry.
struct Connection {
  std::uint32_t local_qpn = 0, remote_qpn = 0;
  std::uint32_t local_psn = 0;   ///< of the first packet that the peer sends
  std::uint32_t remote_psn = 0;  ///< of the first packet that this side sends
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 7, rnr_retry_count = 7;
  std::uint32_t qkey = 0;  ///< 0: neither the program nor the peer needs it yet
};

struct Identifier {
  /// Whether it is bound, to whatever address.
  bool has_source() const { return binding.owns_port || source.family() == kFamilyIb; }

  std::uint32_t number = 0;
  std::uint64_t uid = 0;  ///< the program's name for it; 0: not set yet
  std::uint16_t port_space = RDMA_PS_TCP;
  std::uint8_t qp_type = 0;  ///< ib_uverbs_qp_type
  Channel* channel = nullptr;
  State state = State::kIdle;
  std::uint32_t events_read = 0;
  std::uint32_t backlog = 0;  ///< kListening: number of further requests that may wait

  SocketAddress source, destination;
  LocalAddress local;  ///< source of its messages
  Binding binding;
  bool has_device = false;
  bool accepted = false;            ///< created for a request to a listener
  std::optional<driver::Gid> peer;  ///< destination of its messages
  Route route;

  MessageExchange exchange;
  Connection connection;
  util::Time waits_until = util::kNever;  ///< kTimeWait
};

/// Whether it is for UD QPs, whose peers are resolved by SIDR.
bool is_datagram(const Identifier& id);

}  // namespace softhca::rdma_cm
