#include "rdma_cm/listeners.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "rdma_cm/channel.h"
#include "rdma_cm/connection_events.h"
#include "rdma_cm/ip_service.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::size_t kHeldMax = 64;

/// Whether the request asks for a QP of the listener's type (Linux's cma_ib_check_req_qp_type()). A
/// listener in RDMA_PS_IB may leave the type to the requests.
bool fits(const cm::RequestView& request, const Identifier& listener) {
  return listener.connection.qp_type == 0 || listener.connection.qp_type == request.qp_type();
}

}  // namespace

/// Finds the listener of a service that is bound to address `to`; otherwise one of any address, on
/// all devices or on this one. Null: none. An address of the machine that no device has matches all
/// listeners.
Identifier* Listeners::find(std::uint64_t service, unsigned port, const driver::Gid& to) const {
  Identifier* found = nullptr;
  const bool is_own = ports_.find_local(to).has_value();
  for (const auto& [number, id] : identifiers_.all()) {
    if (id->state != State::kListening || !id->binding.owns_port) continue;
    if (id->binding.bound && id->connection.local.port != port) continue;
    if (service_of(id->port_space, id->source.port()) != service) continue;
    if (id->source.gid() == to) return id.get();
    if (id->binding.one_family && (id->source.family() == AF_INET) != to.is_ipv4()) continue;
    if (is_own && !id->source.is_of_no_device()) continue;
    if (found == nullptr) found = id.get();
  }
  return found;
}

cm::Response Listeners::take(const cm::Received& message, const cm::RequestView& request,
                             util::Time now) {
  const auto addresses = read_addresses(request.private_data());
  auto* const listener = find(request.service(), message.port, addresses.destination);
  if (listener == nullptr) {
    return hold(message, request, now) ? cm::Response::kNone : cm::Response::kNoService;
  }
  if (!fits(request, *listener)) return cm::Response::kRefused;
  if (listener->backlog != 0) {
    accept_from(message, request, *listener);
    return cm::Response::kNone;
  }
  // The listener's backlog is full. As on Linux, datagram requests are refused, and connection
  // requests dropped: their senders repeat them.
  return request.is_datagram() ? cm::Response::kRefused : cm::Response::kNone;
}

/// Holds a request to a port number on which the program will probably listen again soon.
bool Listeners::hold(const cm::Received& message, const cm::RequestView& request, util::Time now) {
  const auto until = bindings_.returns_until(static_cast<std::uint16_t>(request.service()), now);
  if (!until) return false;
  const auto is_same = [&](const Held& one) {
    return one.request.from == message.from && one.request.mad == message.mad;
  };
  if (std::ranges::any_of(held_, is_same)) return true;
  if (held_.size() == kHeldMax) return false;
  held_.push_back({message, *until});
  wakeup_.at(held_.back().until);
  return true;
}

void Listeners::serve_held(bool expired, util::Time now) {
  for (const auto& one : std::exchange(held_, {})) {
    if (expired && one.until > now) {
      held_.push_back(one);
      wakeup_.at(one.until);
    } else {
      connections_.receive(one.request, now);
    }
  }
}

/// Creates an identifier for a request to the listener `its`. @pre its.backlog != 0
void Listeners::accept_from(const cm::Received& message, const cm::RequestView& request,
                            Identifier& its) {
  --its.backlog;
  auto& id = identifiers_.make(*its.channel, ports_.answers_from(message));
  id.port_space = its.port_space;
  id.state = State::kConnecting;
  id.has_device = true;
  id.route.has_path = !request.is_datagram();
  id.connection.path.mtu = routes_.path_mtu(id, message.from);
  const auto addresses = read_addresses(request.private_data());
  id.source = SocketAddress::of(addresses.destination, its.source.port());
  id.destination = SocketAddress::of(addresses.source, addresses.source_port);
  auto offer = connections_.begin(id.connection, message, request);
  offer.private_data = offer.private_data.subspan(kCmaHeader);
  // Notify the listener's program. It names the new identifier when it accepts.
  Event event;
  event.counted_for = its.number;
  event.content.uid = its.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(EventType::kConnectRequest);
  if (request.is_datagram()) {
    put_private_data(event.content.param.ud, offer.private_data);
  } else {
    put_offer(event.content, offer);
  }
  its.channel->push(event);
}

}  // namespace softhca::rdma_cm
