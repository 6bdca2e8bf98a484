#include "rdma_cm/resolver.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "rdma_cm/events.h"

namespace softhca::rdma_cm {
namespace {

constexpr auto kAskAgainAfter = std::chrono::milliseconds(300);

}  // namespace

void Resolver::resolve_address(Identifier& id, util::Duration timeout, util::Time now) {
  const auto& destination = id.destination;
  if (destination.is_multicast() && destination.family() == AF_INET6 &&
      !is_datagram(id.connection)) {
    return report(id, EventType::kAddrError, -ENODEV);
  }
  // Linux's routing table has no route from another device of this host.
  const auto own = ports_.find_local(destination.gid());
  if (own && id.binding.bound && own->port != id.connection.local.port) {
    return report(id, EventType::kAddrError, -ETIMEDOUT);
  }
  if (const auto peer = routes_.resolve(id)) return be_resolved(id, *peer);
  if (!options_.ask) return report(id, EventType::kAddrError, -ENETUNREACH);
  if (options_.forget_service) options_.forget_service(destination, id.port_space);
  id.state = State::kResolving;
  resolving_.insert(id.number);
  id.route.resolve_until = now + timeout;
  wakeup_.at(id.route.resolve_until);
  ask(id, now);
}

void Resolver::be_resolved(Identifier& id, const driver::Gid& peer) {
  routes_.set_peer(id, peer);
  if (id.source.is_of_no_device()) {
    auto source = SocketAddress::of(
        routes_.is_to_this_machine(id) ? id.destination.gid() : id.connection.local.gid,
        id.source.port());
    source.take_scope(id.source);
    id.source = source;
  }
  id.has_device = true;
  id.state = State::kResolved;
  report(id, EventType::kAddrResolved);
}

void Resolver::ask(Identifier& id, util::Time now) {
  id.route.ask_next = now + kAskAgainAfter;
  wakeup_.at(id.route.ask_next);
  const auto to = id.destination.gid();
  options_.ask(to);
  // A link-local address is a program's own.
  if (!options_.ask_service || to.is_link_local() || to.is_multicast()) return;
  options_.ask_service(id.destination, id.port_space);
  const auto owner = find_service(id);
  if (owner && !options_.is_member(*owner)) options_.ask(*owner);
}

std::optional<driver::Gid> Resolver::find_service(const Identifier& id) const {
  return options_.find_service ? options_.find_service(id.destination, id.port_space)
                               : std::nullopt;
}

void Resolver::tick(util::Time now) {
  if (resolving_.empty()) return;
  for (const auto number : std::set(resolving_)) {
    auto* const id = identifiers_.find(number);
    if (id != nullptr && id->state == State::kResolving) wait_for_address(*id, now);
    if (id == nullptr || id->state != State::kResolving) resolving_.erase(number);
  }
}

void Resolver::wait_for_address(Identifier& id, util::Time now) {
  const auto gid = id.destination.gid();
  if (options_.is_member(gid)) {
    be_resolved(id, gid);
  } else if (const auto owner = find_service(id); owner && options_.is_member(*owner)) {
    id.route.by_machine = true;
    be_resolved(id, *owner);
  } else if (now >= id.route.resolve_until) {
    id.state = State::kIdle;
    if (options_.on_unresolved) options_.on_unresolved(gid);
    report(id, EventType::kAddrError, -ETIMEDOUT);
  } else if (now >= id.route.ask_next) {
    ask(id, now);
  }
}

void Resolver::set_wakeup() const {
  for (const auto number : resolving_) {
    const auto* const id = identifiers_.find(number);
    if (id == nullptr || id->state != State::kResolving) continue;
    wakeup_.at(std::min(id->route.ask_next, id->route.resolve_until));
  }
}

void Resolver::resolve_route(Identifier& id) {
  routes_.set_path(id);
  id.state = State::kRouteResolved;
  report(id, EventType::kRouteResolved);
}

}  // namespace softhca::rdma_cm
