// One communication identifier: an rdma_cm_id of the program, with its addresses and its
// connection.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <optional>

#include "cm/connection.h"
#include "driver/address.h"
#include "util/clock.h"

namespace softhca::rdma_cm {

class Channel;

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

/// How far an identifier has come (rdma_cm_state of Linux).
enum class State : std::uint8_t {
  kIdle,  ///< or bound
  kListening,
  kResolving,      ///< waiting for the network to resolve the destination
  kResolved,       ///< the destination's address is resolved
  kRouteResolved,  ///< the path is resolved too
  kConnecting,     ///< a request was sent or received: the connection has the state
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
  bool has_path = false;  ///< that of the connection is resolved
  std::optional<std::uint8_t> wanted_ack_timeout, wanted_tos;  ///< set by the program
  util::Time resolve_until = util::kNever;                     ///< kResolving
  util::Time ask_next = util::kNever;
  /// The destination is an address of the peer's machine, and not of the peer itself.
  bool by_machine = false;
};

struct Identifier {
  /// Whether it is bound, to whatever address.
  bool has_source() const { return binding.owns_port || source.family() == kFamilyIb; }

  std::uint32_t number = 0;
  std::uint64_t uid = 0;  ///< the program's name for it; 0: not set yet
  std::uint16_t port_space = RDMA_PS_TCP;
  Channel* channel = nullptr;
  State state = State::kIdle;
  std::uint32_t events_read = 0;
  std::uint32_t backlog = 0;  ///< kListening: number of further requests that may wait

  SocketAddress source, destination;
  Binding binding;
  bool has_device = false;
  Route route;

  /// Its attributes and addresses are set before it begins.
  cm::Connection connection;
};

}  // namespace softhca::rdma_cm
