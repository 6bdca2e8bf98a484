// One communication identifier: what a program knows as rdma_cm_id, and its connection.
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

inline constexpr std::uint8_t kMtu4096 = 5;  ///< ib_mtu

/// IPv4 or IPv6.
struct SocketAddress {
  sockaddr_storage storage{};

  std::uint16_t family() const { return storage.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  /// Bytes that a program is told; 0: no address.
  std::uint16_t size() const;
  /// 0.0.0.0 or ::.
  bool is_any() const;
  bool is_loopback() const;
  /// Linux takes loopback for any address as well: no device has it (cma_any_addr).
  bool is_of_no_device() const { return is_any() || is_loopback(); }
  bool is_multicast() const;
  /// IPv4 alone has one.
  bool is_broadcast() const;
  /// ::ffff:a.b.c.d.
  bool is_mapped() const;
  /// Link-local, and of no interface.
  bool lacks_scope() const;
  /// In the form of a GID: IPv4 as ::ffff:a.b.c.d.
  driver::Gid gid() const;
  static SocketAddress of(const driver::Gid& gid, std::uint16_t port);
  /// 0.0.0.0 or ::, port 0.
  static SocketAddress any(std::uint16_t family);
};

/// In the order of a connection's life: what precedes kReqSent has no connection yet.
enum class State : std::uint8_t {
  kIdle,  ///< or bound
  kListening,
  kResolving,      ///< the network is asked for the destination
  kResolved,       ///< the destination is known
  kRouteResolved,  ///< so is the path to it
  kReqSent,        ///< or SIDR_REQ
  kReqReceived,    ///< or SIDR_REQ; the program has not answered
  kRepSent,
  kRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,  ///< the program has not disconnected yet
  kTimeWait,      ///< its packets may still be on their way
  kOver,
};

/// The message that is sent again until it is answered.
struct Repeated {
  Mad mad{};
  unsigned tries_left = 0;
  util::Duration interval{};
  util::Time next = util::kNever;
};

/// An address of ours, with the port that has it.
struct LocalAddress {
  unsigned port = 0;           ///< by index
  std::uint8_t gid_index = 0;  ///< in the port's table
  driver::Gid gid;
};

/// What packets of a connection are sent with.
struct Path {
  std::uint8_t mtu = kMtu4096;  ///< ib_mtu
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t ack_timeout = 0;  ///< of the QP: 4.096 us * 2^n (IBTA 9.7.6.1.3)
};

struct Identifier {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;  ///< what the program calls it; 0: it has not said yet
  std::uint16_t port_space = RDMA_PS_TCP;
  std::uint8_t qp_type = 0;  ///< ib_uverbs_qp_type
  Channel* channel = nullptr;
  State state = State::kIdle;
  std::uint32_t events_read = 0;
  std::uint32_t backlog = 0;  ///< kListening: how many more requests may wait to be read of

  SocketAddress source, destination;
  LocalAddress local;  ///< from which its messages go
  bool bound = false;  ///< to that address alone: the program has said so
  bool has_device = false;
  bool owns_port = false;           ///< its number is claimed
  bool reuses_port = false;         ///< with others that do, until one listens
  bool one_family = false;          ///< the number of the other IP may be another's
  bool accepted = false;            ///< made for a request to a listener
  std::optional<driver::Gid> peer;  ///< where its messages go

  // As told in messages.
  std::uint32_t local_comm_id = 0, remote_comm_id = 0;
  std::uint64_t transaction = 0;
  std::uint64_t service = 0;
  std::uint32_t local_qpn = 0, remote_qpn = 0;
  std::uint32_t local_psn = 0;   ///< at which the peer begins to send
  std::uint32_t remote_psn = 0;  ///< at which we do
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 7, rnr_retry_count = 7;
  std::uint32_t qkey = 0;
  std::optional<std::uint8_t> wanted_ack_timeout, wanted_tos;  ///< that the program has set
  bool has_path = false;
  Path path;
  std::uint8_t repeats_max = 0;       ///< of each of its messages
  util::Duration response_timeout{};  ///< between two of these
  Repeated repeated;
  util::Time resolve_until = util::kNever;  ///< kResolving
  util::Time ask_next = util::kNever;
  util::Time waits_until = util::kNever;  ///< kTimeWait
};

/// Of an identifier in a multicast group.
struct Membership {
  std::uint32_t number = 0;  ///< by which it is left
  std::uint32_t id = 0;
  std::uint64_t uid = 0;  ///< what the program calls it
  std::uint32_t events_read = 0;
};

/// QPs of datagrams, whose peers are found by SIDR.
bool is_datagram(const Identifier& id);

}  // namespace softhca::rdma_cm
