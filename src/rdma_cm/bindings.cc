#include "rdma_cm/bindings.h"

#include <endian.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>

#include "rdma_cm/ip_service.h"

namespace softhca::rdma_cm {
namespace {

/// cma_select_ib_ps of Linux: whether a service ID belongs to a port space.
bool is_in_space(const SocketAddress& address, std::uint16_t space) {
  constexpr std::uint64_t kSpaces = ~std::uint64_t{0xffff};
  const auto& ib = reinterpret_cast<const IbAddress&>(address.storage);
  const auto mask = be64toh(ib.service_mask) & kSpaces;
  const auto is = [&](std::uint16_t one) {
    return (be64toh(ib.service) & mask) == (service_of(one, 0) & mask);
  };
  if (space == RDMA_PS_IB) return is(RDMA_PS_IB) || is(RDMA_PS_TCP) || is(RDMA_PS_UDP);
  return (space == RDMA_PS_TCP || space == RDMA_PS_UDP) && is(space);
}

/// Answers as a host without InfiniBand ports (rdma_bind_addr_dst of Linux): no device has an AF_IB
/// address. librdmacm binds to the any address to find out whether the kernel knows AF_IB.
Errno bind_to_ib(Identifier& id, const SocketAddress& address) {
  if (!address.is_of_no_device()) return ENODEV;
  if (!is_in_space(address, id.port_space)) return EPROTONOSUPPORT;
  id.source = address;
  id.destination = SocketAddress::any(kFamilyIb);
  return 0;
}

/// The error if two identifiers with one number conflict.
Errno conflict_of(const Identifier& one, const Identifier& other) {
  const bool apart = one.binding.one_family && other.binding.one_family;
  if (apart && one.source.family() != other.source.family()) return 0;
  if (one.source.is_of_no_device() || other.source.is_of_no_device()) return EADDRNOTAVAIL;
  return one.source.gid() == other.source.gid() ? EADDRINUSE : 0;
}

bool have_one_number(const Identifier& one, const Identifier& other) {
  return &one != &other && other.binding.owns_port && other.port_space == one.port_space &&
         other.source.port() == one.source.port();
}

ListenerService listener_of(const Identifier& id) {
  using Family = ListenerService::Family;
  ListenerService listener{
      .service = service_of(id.port_space, id.source.port()), .port = std::nullopt, .address = {}};
  if (id.binding.bound) {
    listener.port = id.connection.local.port;
    listener.address = id.connection.local.gid;
  } else if (id.binding.one_family && id.source.is_of_no_device()) {
    listener.family = id.source.family() == AF_INET ? Family::kIpv4 : Family::kIpv6;
  }
  return listener;
}

}  // namespace

Bindings::Bindings(const Ports& ports, const Options& options, const Identifiers& identifiers)
    : ports_(ports),
      options_(options),
      identifiers_(identifiers),
      last_port_(static_cast<std::uint16_t>(cm::random_number())) {}

Errno Bindings::bind(Identifier& id, const SocketAddress& address) {
  if (id.state != State::kIdle || id.has_source() || address.lacks_scope()) return EINVAL;
  if (address.family() == kFamilyIb) return bind_to_ib(id, address);
  std::optional<cm::LocalAddress> own;
  if (!address.is_of_no_device()) {
    if (address.is_multicast() || address.is_broadcast() || address.is_mapped()) {
      return EADDRNOTAVAIL;
    }
    own = ports_.find_local(address.gid());
    if (!own && !options_.is_local(address)) return EADDRNOTAVAIL;
    if (id.port_space == RDMA_PS_IPOIB) return EINVAL;  // InfiniBand only
  }
  const auto before = id;
  id.source = address;
  if (address.family() == AF_INET && !id.binding.chose_family) id.binding.one_family = true;
  id.binding.bound = own.has_value();
  if (own) id.connection.local = *own;
  if (const auto wrong = claim(id); wrong != 0) {
    id = before;
    return wrong;
  }
  id.has_device = !address.is_of_no_device();
  if (id.destination.family() == 0) id.destination = SocketAddress::any(address.family());
  return 0;
}

Errno Bindings::check_port(const Identifier& id, bool reuses) const {
  for (const auto& [number, other] : identifiers_.all()) {
    if (!have_one_number(id, *other)) continue;
    if (reuses && other->binding.reuses_port && other->state != State::kListening) continue;
    if (const auto wrong = conflict_of(id, *other); wrong != 0) return wrong;
  }
  return 0;
}

const Identifier* Bindings::other_owner(const Identifier& id) const {
  for (const auto& [number, other] : identifiers_.all()) {
    if (have_one_number(id, *other)) return other.get();
  }
  return nullptr;
}

Errno Bindings::claim(Identifier& id) {
  if (id.source.port() == 0) return claim_any(id);
  if (const auto wrong = check_port(id, id.binding.reuses_port); wrong != 0) return wrong;
  const auto wrong =
      other_owner(id) != nullptr
          ? 0
          : options_.port_numbers.claim(id.port_space, id.source.port(), id.connection.local.gid,
                                        id.source.is_of_no_device());
  id.binding.owns_port = wrong == 0;
  return wrong;
}

Errno Bindings::claim_any(Identifier& id) {
  const bool any = id.source.is_of_no_device();
  const auto range = options_.port_numbers.free_numbers();
  const unsigned count = range.last - range.first + 1u;
  for (unsigned i = 0; i != count; ++i) {
    last_port_ = static_cast<std::uint16_t>((last_port_ + 1u) % count);
    const auto port = static_cast<std::uint16_t>(range.first + last_port_);
    if (options_.port_numbers.claim(id.port_space, port, id.connection.local.gid, any) != 0)
      continue;
    id.source.set_port(port);
    id.binding.owns_port = true;
    return 0;
  }
  return EADDRNOTAVAIL;
}

Errno Bindings::listen(const Identifier& id) const {
  return !options_.on_listen || options_.on_listen(listener_of(id)) ? 0 : ENOMEM;
}

/// If another identifier of this process shares the number, claims it again for that one's address.
/// A listener whose connections go on will probably return.
void Bindings::release(Identifier& id, util::Time now) {
  if (!id.binding.owns_port) return;
  id.binding.owns_port = false;
  const auto port = id.source.port();
  bool returns = false;
  if (id.state == State::kListening) {
    if (options_.on_unlisten) options_.on_unlisten(listener_of(id));
    for (const auto& [number, other] : identifiers_.all()) {
      returns |= other->connection.passive && other->source.port() == port &&
                 other->connection.state >= cm::State::kReqRcvd &&
                 other->connection.state <= cm::State::kDreqSent;
    }
    std::erase_if(left_, [now](const auto& one) { return now - one.second >= kListenAgain; });
    if (returns) left_[port] = now;
  }
  options_.port_numbers.release(id.port_space, port, returns);
  if (const auto* other = other_owner(id); other != nullptr) {
    (void)options_.port_numbers.claim(id.port_space, port, other->connection.local.gid,
                                      other->source.is_of_no_device());
  }
}

std::optional<util::Time> Bindings::returns_until(std::uint16_t port, util::Time now) const {
  const auto left = left_.find(port);
  if (left == left_.end() || now - left->second >= kListenAgain) return std::nullopt;
  return left->second + kListenAgain;
}

}  // namespace softhca::rdma_cm
