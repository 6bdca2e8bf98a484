// Commands that give an identifier its addresses: bind to a source, resolve a destination (kernel
// interface 8.2, 8.4).
#include <endian.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

constexpr auto kAskAgainAfter = std::chrono::milliseconds(300);

SocketAddress address_of(const __kernel_sockaddr_storage& from) {
  SocketAddress to;
  static_assert(sizeof to.storage == sizeof from);
  std::memcpy(&to.storage, &from, sizeof from);
  return to;
}

/// Whether a command gives the size of its address.
bool has_size(const SocketAddress& address, std::uint16_t size) {
  return size != 0 && size == address.size();
}

/// Whether frames to the address go to more than one host.
bool is_of_many(const SocketAddress& to, bool datagram) {
  return to.is_broadcast() || (to.family() == AF_INET && to.is_multicast() && !datagram);
}

}  // namespace

Errno Manager::bind(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_bind>(in);
  const auto address = address_of(command.addr);
  if (command.reserved != 0 || !has_size(address, command.addr_size)) return EINVAL;
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  return bindings_.bind(*id, address);
}

/// Chooses the source, unless the program has bound it. To reach an address of this host, the same
/// address is the source.
void Manager::choose_local(Id& id) {
  if (id.bound) return;
  const auto own = ports_->find_local(*id.peer);
  id.local = own ? *own : ports_->local_for(*id.peer, id.local.port);
}

/// The destination of its messages. An address of this machine that no device has stands for the
/// program that has the port number. If no program has it, the identifier's own process answers
/// that there is no such service.
std::optional<driver::Gid> Manager::resolve(const Id& id) const {
  const auto gid = id.destination.gid();
  const bool is_of_all = id.destination.is_multicast() || id.destination.is_broadcast();
  if (is_of_all || options_.is_member(gid)) return gid;
  if (!id.destination.is_any() && !options_.is_local(id.destination)) return std::nullopt;
  return options_.port_numbers.find(id.port_space, id.destination.port()).value_or(id.local.gid);
}

/// Whether it goes to an address of the machine that no device has, such as 127.0.0.1.
bool Manager::is_to_this_machine(const Id& id) const {
  return !id.destination.is_any() && !id.destination.is_multicast() &&
         !options_.is_member(id.destination.gid()) && options_.is_local(id.destination);
}

/// The source address that the peer sees. A connection to an address of the machine also comes from
/// one.
driver::Gid Manager::source_of(const Id& id) const {
  return is_to_this_machine(id) ? id.source.gid() : id.local.gid;
}

/// The destination address that the peer sees.
driver::Gid Manager::target_of(const Id& id) const {
  return is_to_this_machine(id) ? id.destination.gid() : *id.peer;
}

/// Stands in for Linux's routing table. Multicast and broadcast need a device; a global IPv6
/// address needs a global source. All other addresses are left to resolve().
Errno Manager::check_route(const Id& id, const SocketAddress& to) const {
  if (to.is_mapped()) return ENETUNREACH;
  if (is_of_many(to, is_datagram(id)) && !id.bound) {
    return id.source.is_loopback() ? ENODEV : ENETUNREACH;
  }
  const bool is_global = to.family() == AF_INET6 && !to.is_of_no_device() && !to.is_multicast() &&
                         !to.gid().is_link_local();
  return is_global && !ports_->has_global_ipv6() && !options_.is_local(to) ? ENETUNREACH : 0;
}

Errno Manager::resolve_addr(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_resolve_addr>(in);
  const auto destination = address_of(command.dst_addr);
  auto source = address_of(command.src_addr);
  if (command.reserved != 0 || !has_size(destination, command.dst_size)) return EINVAL;
  if (command.src_size != 0 && !has_size(source, command.src_size)) return EINVAL;
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  if (id->state != State::kIdle) return EINVAL;
  if (!id->has_source()) {
    if (source.size() == 0) {
      source = SocketAddress::any(destination.family());
      source.take_scope(destination);
    }
    if (const auto wrong = bindings_.bind(*id, source); wrong != 0) return wrong;
  }
  if (id->source.family() != destination.family()) return EINVAL;
  if (destination.family() == kFamilyIb) return ENODEV;  // cma_resolve_ib_dev
  if (const auto wrong = check_route(*id, destination); wrong != 0) return wrong;
  id->destination = destination;
  if (destination.is_multicast() && destination.family() == AF_INET6 && !is_datagram(*id)) {
    report(*id, EventType::kAddrError, -ENODEV);
    return 0;
  }
  // Linux's routing table has no route from another device of this host.
  const auto own = ports_->find_local(destination.gid());
  if (own && id->bound && own->port != id->local.port) {
    report(*id, EventType::kAddrError, -ETIMEDOUT);
    return 0;
  }
  if (const auto peer = resolve(*id)) {
    be_resolved(*id, *peer);
    return 0;
  }
  if (!options_.ask) {
    report(*id, EventType::kAddrError, -ENETUNREACH);
    return 0;
  }
  id->state = State::kResolving;
  resolving_.insert(id->number);
  id->resolve_until = now_ + std::chrono::milliseconds(command.timeout_ms);
  wakeup_.at(id->resolve_until);
  ask(*id);
  return 0;
}

void Manager::be_resolved(Id& id, const driver::Gid& peer) {
  id.peer = peer;
  choose_local(id);
  if (id.source.is_of_no_device()) {
    auto source = SocketAddress::of(is_to_this_machine(id) ? id.destination.gid() : id.local.gid,
                                    id.source.port());
    source.take_scope(id.source);
    id.source = source;
  }
  id.has_device = true;
  id.state = State::kResolved;
  report(id, EventType::kAddrResolved);
}

void Manager::ask(Id& id) {
  id.ask_next = now_ + kAskAgainAfter;
  wakeup_.at(id.ask_next);
  options_.ask(id.destination.gid());
}

/// Polls for resolved addresses, since no event reports them.
void Manager::look_for_addresses() {
  for (const auto number : std::set(resolving_)) {
    auto* const id = identifiers_.find(number);
    if (id != nullptr && id->state == State::kResolving) wait_for_address(*id);
    if (id == nullptr || id->state != State::kResolving) resolving_.erase(number);
  }
}

void Manager::wait_for_address(Id& id) {
  const auto gid = id.destination.gid();
  if (options_.is_member(gid)) {
    be_resolved(id, gid);
  } else if (now_ >= id.resolve_until) {
    id.state = State::kIdle;
    report(id, EventType::kAddrError, -ETIMEDOUT);
  } else if (now_ >= id.ask_next) {
    ask(id);
  }
}

Errno Manager::resolve_route(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_resolve_route>(in);
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  if (command.timeout_ms == 0 || id->state != State::kResolved) return EINVAL;
  find_path(*id);
  return 0;
}

std::uint8_t Manager::path_mtu(const Id& id, const driver::Gid& to) const {
  const auto fits = ports_->active_mtu(id);
  return std::min(fits, options_.path_mtu ? options_.path_mtu(to) : kMtu4096);
}

/// As on Linux: the flow label depends on the port numbers, so that connections take different
/// paths.
void Manager::find_path(Id& id) {
  constexpr unsigned kFactor = 31, kFlowLabelMax = 0xfffff, kAckTimeoutMax = 31;
  const auto wanted = id.wanted_ack_timeout.value_or(0);
  const unsigned lifetime = wanted != 0 ? wanted - 1u : kPacketLifetime;
  id.path = {.mtu = path_mtu(id, *id.peer),
             .traffic_class = id.wanted_tos.value_or(0),
             .flow_label = (id.source.port() * kFactor + id.destination.port()) & kFlowLabelMax,
             .ack_timeout = static_cast<std::uint8_t>(std::min(lifetime + 1, kAckTimeoutMax))};
  id.response_timeout = cm_time(kResponseTimeout) + 2 * cm_time(lifetime);
  id.has_path = true;
  id.state = State::kRouteResolved;
  report(id, EventType::kRouteResolved);
}

}  // namespace softhca::rdma_cm
