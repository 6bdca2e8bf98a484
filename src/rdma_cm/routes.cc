#include "rdma_cm/routes.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "cm/message.h"

namespace softhca::rdma_cm {
namespace {

/// Whether frames to the address go to more than one host.
bool is_of_many(const SocketAddress& to, bool datagram) {
  return to.is_broadcast() || (to.family() == AF_INET && to.is_multicast() && !datagram);
}

}  // namespace

/// Multicast and broadcast need a device. A global IPv6 address needs a global source, unless it
/// may be another machine's. All other addresses are left to resolve().
Errno Routes::check(const Identifier& id, const SocketAddress& to) const {
  if (to.is_mapped()) return ENETUNREACH;
  if (is_of_many(to, is_datagram(id.connection)) && !id.binding.bound) {
    return id.source.is_loopback() ? ENODEV : ENETUNREACH;
  }
  const bool is_global = to.family() == AF_INET6 && !to.is_of_no_device() && !to.is_multicast() &&
                         !to.gid().is_link_local();
  const bool has_route = ports_.has_global_ipv6() || options_.ask_service != nullptr;
  return is_global && !has_route && !options_.is_local(to) ? ENETUNREACH : 0;
}

/// An address of this machine that no device has stands for the program that has the port number.
/// If no program has it, the identifier's own process answers that there is no such service.
std::optional<driver::Gid> Routes::resolve(const Identifier& id) const {
  if (id.route.by_machine) return id.connection.peer;
  const auto gid = id.destination.gid();
  const bool is_of_all = id.destination.is_multicast() || id.destination.is_broadcast();
  if (is_of_all || options_.is_member(gid)) return gid;
  if (!id.destination.is_any() && !options_.is_local(id.destination)) return std::nullopt;
  return options_.port_numbers.find(id.port_space, id.destination.port())
      .value_or(id.connection.local.gid);
}

/// If the program has bound the source, it stays. To reach an address of this host, the same
/// address is the source.
void Routes::set_peer(Identifier& id, const driver::Gid& peer) const {
  id.connection.peer = peer;
  if (id.binding.bound) return;
  const auto own = ports_.find_local(peer);
  id.connection.local = own ? *own : ports_.local_for(peer, id.connection.local.port);
}

bool Routes::is_to_this_machine(const Identifier& id) const {
  return !id.destination.is_any() && !id.destination.is_multicast() &&
         !options_.is_member(id.destination.gid()) && options_.is_local(id.destination);
}

IpAddresses Routes::addresses(const Identifier& id) const {
  const bool is_own = is_to_this_machine(id);
  return {.source = is_own ? id.source.gid() : id.connection.local.gid,
          .destination = is_own || id.route.by_machine ? id.destination.gid() : *id.connection.peer,
          .source_port = id.source.port()};
}

std::uint8_t Routes::path_mtu(const Identifier& id, const driver::Gid& to) const {
  const auto fits = ports_.active_mtu(id);
  return std::min(fits, options_.path_mtu ? options_.path_mtu(to) : cm::kMtu4096);
}

/// As on Linux: the flow label depends on the port numbers, so that connections take different
/// paths.
void Routes::set_path(Identifier& id) const {
  constexpr unsigned kFactor = 31, kFlowLabelMax = 0xfffff, kAckTimeoutMax = 31;
  const auto wanted = id.route.wanted_ack_timeout.value_or(0);
  const unsigned lifetime = wanted != 0 ? wanted - 1u : cm::kPacketLifetime;
  id.connection.path = {
      .mtu = path_mtu(id, *id.connection.peer),
      .traffic_class = id.route.wanted_tos.value_or(0),
      .flow_label = (id.source.port() * kFactor + id.destination.port()) & kFlowLabelMax,
      .ack_timeout = static_cast<std::uint8_t>(std::min(lifetime + 1, kAckTimeoutMax))};
  id.connection.exchange.response_timeout =
      cm::timeout_of(cm::kResponseTimeout) + 2 * cm::timeout_of(lifetime);
  id.route.has_path = true;
}

}  // namespace softhca::rdma_cm
