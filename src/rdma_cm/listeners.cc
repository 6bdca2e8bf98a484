#include "rdma_cm/listeners.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "rdma_cm/channel.h"
#include "rdma_cm/message_reader.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::size_t kHeldMax = 64;

/// Whether the request asks for a QP of the listener's type (Linux's cma_ib_check_req_qp_type()). A
/// listener in RDMA_PS_IB may leave the type to the requests.
bool fits(const RequestView& request, const Identifier& listener) {
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

void Listeners::receive(const Received& message, bool datagram, util::Time now) {
  const RequestView request(message.mad, datagram);
  auto* const known = identifiers_.find_request({request.number(), datagram, message.from.bytes});
  if (known != nullptr) return connections_.receive_again(*known, message.mad, now);
  auto* const listener = find(request.service(), message.port, request.destination());
  if (listener == nullptr) {
    if (!hold(message, request, now)) refuse(message, request, Refusal::kNoService);
  } else if (!fits(request, *listener)) {
    refuse(message, request, Refusal::kByListener);
  } else if (listener->backlog != 0) {
    auto& id = accept_from(message, request, *listener);
    id.connection.exchange.remote_comm_id = request.number();
    identifiers_.add_request(id);
  } else if (datagram) {
    // The listener's backlog is full. As on Linux, datagram requests are refused, and connection
    // requests dropped: their senders repeat them.
    refuse(message, request, Refusal::kByListener);
  }
}

void Listeners::refuse(const Received& message, const RequestView& request, Refusal why) {
  const bool no_service = why == Refusal::kNoService;
  Connection refused;
  refused.peer = message.from;
  refused.local = ports_.answers_from(message);
  refused.exchange.transaction = transaction_of(message.mad);
  refused.exchange.remote_comm_id = request.number();
  refused.exchange.service = request.service();
  refused.state = ConnectionState::kReqRcvd;
  if (request.is_datagram()) {
    connections_.send_sidr_rep(refused, no_service ? kSidrNoService : kSidrRejected, 0, {});
  } else {
    using Reason = spec::cm_reject_reason;
    connections_.send_rej(
        refused, number_of(no_service ? Reason::INVALID_SERVICE_ID : Reason::CONSUMER), {});
  }
}

/// Holds a request to a port number on which the program will probably listen again soon.
bool Listeners::hold(const Received& message, const RequestView& request, util::Time now) {
  const auto until = bindings_.returns_until(static_cast<std::uint16_t>(request.service()), now);
  if (!until) return false;
  const auto is_same = [&](const Held& one) {
    return one.request.from == message.from && one.request.mad == message.mad;
  };
  if (std::ranges::any_of(held_, is_same)) return true;
  if (held_.size() == kHeldMax) return false;
  held_.push_back({message, request.is_datagram(), *until});
  wakeup_.at(held_.back().until);
  return true;
}

void Listeners::serve_held(bool expired, util::Time now) {
  for (const auto& one : std::exchange(held_, {})) {
    if (expired && one.until > now) {
      held_.push_back(one);
      wakeup_.at(one.until);
    } else {
      receive(one.request, one.datagram, now);
    }
  }
}

/// Creates an identifier for a request to the listener `its`. @pre its.backlog != 0
Identifier& Listeners::accept_from(const Received& message, const RequestView& request,
                                   Identifier& its) {
  --its.backlog;
  auto& id = identifiers_.make(*its.channel, ports_.default_local());
  id.connection.passive = true;
  id.port_space = its.port_space;
  id.connection.qp_type = request.qp_type();
  id.state = State::kConnecting;
  id.connection.state = ConnectionState::kReqRcvd;
  id.has_device = true;
  id.connection.peer = message.from;
  id.connection.exchange.service = service_of(its.port_space, its.source.port());
  id.connection.exchange.transaction = transaction_of(message.mad);
  id.connection.local = ports_.answers_from(message);
  id.connection.path.mtu = routes_.path_mtu(id, message.from);
  id.source = SocketAddress::of(request.destination(), its.source.port());
  id.destination = SocketAddress::of(request.source(), request.source_port());
  // Notify the listener's program. It names the new identifier when it accepts.
  Event event;
  event.counted_for = its.number;
  event.content.uid = its.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(EventType::kConnectRequest);
  if (request.is_datagram()) {
    put_private_data(event.content.param.ud, request.private_data());
  } else {
    read_req(message.mad, id.connection, event.content);
    id.route.has_path = true;
  }
  its.channel->push(event);
  return id;
}

}  // namespace softhca::rdma_cm
