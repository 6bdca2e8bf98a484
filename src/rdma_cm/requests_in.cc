// Requests of other communication managers, REQ and SIDR_REQ, and their listeners.
#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstring>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

using Req = spec::cm_req;
using SidrReq = spec::cm_sidr_req;

constexpr std::size_t kHeldMax = 64;

driver::Gid address_in(std::span<const std::byte> at, bool ipv4) {
  driver::Gid gid{};
  std::ranges::copy(at, gid.bytes.begin());
  if (ipv4) util::store_be16(gid.bytes.data() + 10, 0xffff);
  return gid;
}

/// The local address to which the sender addressed a request.
driver::Gid destination_in(std::span<const std::byte> private_data) {
  const util::View<spec::cma_header> cma(private_data.first<kCmaHeader>());
  return address_in(cma.get(spec::cma_header::destination),
                    cma.get(spec::cma_header::ip_version) == 4);
}

/// The sender's number for its request.
std::uint32_t number_in(const Mad& mad, bool datagram) {
  return datagram ? body_of<SidrReq>(mad).get(SidrReq::request_id)
                  : body_of<Req>(mad).get(Req::local_comm_id);
}

std::uint64_t service_in(const Mad& mad, bool datagram) {
  return datagram ? body_of<SidrReq>(mad).get(SidrReq::service_id)
                  : body_of<Req>(mad).get(Req::service_id);
}

std::span<const std::byte> private_data_in(const Mad& mad, bool datagram) {
  return datagram ? std::span<const std::byte>(body_of<SidrReq>(mad).get(SidrReq::private_data))
                  : std::span<const std::byte>(body_of<Req>(mad).get(Req::private_data));
}

/// The type of the QP that answers, an ib_uverbs_qp_type (cm_req_get_qp_type of Linux). 0: the
/// request names no known type.
std::uint8_t qp_type_in(const Mad& mad, bool datagram) {
  if (datagram) return IB_UVERBS_QPT_UD;
  const auto req = body_of<Req>(mad);
  const auto transport = req.get(Req::transport);
  if (transport == 0) return IB_UVERBS_QPT_RC;
  if (transport == kTransportUc) return IB_UVERBS_QPT_UC;
  const bool is_xrc =
      transport == kTransportExtended && req.get(Req::extended_transport) == kExtendedXrc;
  if (is_xrc) return IB_UVERBS_QPT_XRC_TGT;
  return 0;
}

/// Whether the request asks for a QP of the listener's type (Linux's cma_ib_check_req_qp_type()). A
/// listener in RDMA_PS_IB may leave the type to the requests.
bool fits(const Mad& mad, bool datagram, const Identifier& listener) {
  return listener.qp_type == 0 || listener.qp_type == qp_type_in(mad, datagram);
}

}  // namespace

/// Finds the listener of a service that is bound to address `to`; otherwise one of any address, on
/// all devices or on this one. Null: none. An address of the machine that no device has matches all
/// listeners.
Manager::Id* Manager::find_listener(std::uint64_t service, unsigned port,
                                    const driver::Gid& to) const {
  Id* found = nullptr;
  const bool is_own = find_local(to).has_value();
  for (const auto& [number, id] : ids_) {
    if (id->state != State::kListening || (id->bound && id->local.port != port)) continue;
    if (!id->owns_port || service_of(id->port_space, id->source.port()) != service) continue;
    if (id->source.gid() == to) return id.get();
    if (id->one_family && (id->source.family() == AF_INET) != to.is_ipv4()) continue;
    if (is_own && !id->source.is_of_no_device()) continue;
    if (found == nullptr) found = id.get();
  }
  return found;
}

void Manager::hear_request(const Received& message, bool datagram) {
  const auto number = number_in(message.mad, datagram);
  if (const auto at = requests_.find({number, datagram, message.from.bytes});
      at != requests_.end()) {
    auto& id = *at->second;
    if (!datagram) return apply(id, Heard::kReq, &message);
    // A repeated SIDR_REQ: the answer was lost.
    if (id.state == State::kEstablished) (void)send(id.repeated.mad, id);
    return;
  }
  const auto service = service_in(message.mad, datagram);
  const auto to = destination_in(private_data_in(message.mad, datagram));
  auto* const listener = find_listener(service, message.port, to);
  if (listener == nullptr) {
    if (!hold(message, service)) refuse_request(message, datagram, Refusal::kNoService);
  } else if (!fits(message.mad, datagram, *listener)) {
    refuse_request(message, datagram, Refusal::kByListener);
  } else if (listener->backlog != 0) {
    auto& id = accept_from(message, *listener, datagram);
    id.remote_comm_id = number;
    requests_[key_of(id)] = &id;
  } else if (datagram) {
    // The listener's backlog is full. As on Linux, datagram requests are refused, and connection
    // requests dropped: their senders repeat them.
    refuse_request(message, datagram, Refusal::kByListener);
  }
}

Manager::PeersNumber Manager::key_of(const Id& id) {
  return {id.remote_comm_id, is_datagram(id), id.peer->bytes};
}

void Manager::forget_request(const Id& id) {
  if (!id.accepted || !id.peer) return;
  const auto at = requests_.find(key_of(id));
  if (at != requests_.end() && at->second == &id) requests_.erase(at);
}

/// The source of the answer to a request: the address that the request was sent to.
LocalAddress Manager::answers_from(const Received& message) const {
  const auto own = find_local(message.to);
  return own && own->port == message.port ? *own : local_for(message.from, message.port);
}

void Manager::refuse_request(const Received& message, bool datagram, Refusal why) {
  const bool no_service = why == Refusal::kNoService;
  Id nobody;
  nobody.peer = message.from;
  nobody.local = answers_from(message);
  nobody.transaction = transaction_of(message.mad);
  nobody.remote_comm_id = number_in(message.mad, datagram);
  nobody.service = service_in(message.mad, datagram);
  nobody.state = State::kReqReceived;
  if (datagram) {
    send_sidr_reply(nobody, no_service ? kSidrNoService : kSidrRejected, 0, {});
  } else {
    using Reason = spec::cm_reject_reason;
    send_reject(nobody, number_of(no_service ? Reason::INVALID_SERVICE_ID : Reason::CONSUMER), {});
  }
}

/// Holds a request to a port number on which the program will probably listen again soon.
bool Manager::hold(const Received& message, std::uint64_t service) {
  const auto left = left_.find(static_cast<std::uint16_t>(service));
  if (left == left_.end() || now_ - left->second >= kListenAgain) return false;
  const auto is_same = [&](const Held& one) {
    return one.request.from == message.from && one.request.mad == message.mad;
  };
  if (std::ranges::any_of(held_, is_same)) return true;
  if (held_.size() == kHeldMax) return false;
  held_.push_back({message, left->second + kListenAgain});
  wake_at(held_.back().until);
  return true;
}

/// Handles held requests. `expired`: only those whose time is over; otherwise all, since a program
/// listens again.
void Manager::serve_held(bool expired) {
  for (const auto& one : std::exchange(held_, {})) {
    if (expired && one.until > now_) {
      held_.push_back(one);
      wake_at(one.until);
    } else {
      hear(one.request);
    }
  }
}

/// Creates an identifier for a request to the listener `its`. @pre its.backlog != 0
Manager::Id& Manager::accept_from(const Received& message, Id& its, bool datagram) {
  --its.backlog;
  const auto private_data = private_data_in(message.mad, datagram);
  const util::View<spec::cma_header> cma(private_data.first<kCmaHeader>());
  const bool ipv4 = cma.get(spec::cma_header::ip_version) == 4;
  auto& id = make(*its.channel);
  id.accepted = true;
  id.port_space = its.port_space;
  id.qp_type = qp_type_in(message.mad, datagram);
  id.state = State::kReqReceived;
  id.has_device = true;
  id.peer = message.from;
  id.service = service_of(its.port_space, its.source.port());
  id.transaction = transaction_of(message.mad);
  id.local = answers_from(message);
  id.path.mtu = path_mtu(id, message.from);
  id.source = SocketAddress::of(destination_in(private_data), its.source.port());
  id.destination = SocketAddress::of(address_in(cma.get(spec::cma_header::source), ipv4),
                                     static_cast<std::uint16_t>(cma.get(spec::cma_header::port)));
  // Notify the listener's program. It names the new identifier when it accepts.
  Event event;
  event.counted_for = its.number;
  event.content.uid = its.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(EventType::kConnectRequest);
  if (datagram) {
    put_private_data(event.content.param.ud, private_data.subspan(kCmaHeader));
  } else {
    note_request(id, message, event);
  }
  its.channel->push(event);
  return id;
}

void Manager::note_request(Id& id, const Received& message, Event& event) {
  constexpr std::uint32_t kTimeoutMax = 24;  // a minute
  const auto req = body_of<Req>(message.mad);
  id.remote_qpn = req.get(Req::local_qpn);
  id.remote_psn = req.get(Req::starting_psn);
  id.responder_resources = static_cast<std::uint8_t>(req.get(Req::initiator_depth));
  id.initiator_depth = static_cast<std::uint8_t>(req.get(Req::responder_resources));
  id.retry_count = static_cast<std::uint8_t>(req.get(Req::retry_count));
  id.rnr_retry_count = static_cast<std::uint8_t>(req.get(Req::rnr_retry));
  id.repeats_max = static_cast<std::uint8_t>(req.get(Req::max_cm_retries));
  id.response_timeout = cm_time(std::min(req.get(Req::local_response_timeout), kTimeoutMax));
  const auto mtu = static_cast<std::uint8_t>(req.get(Req::path_mtu));
  if (mtu != 0 && mtu <= kMtu4096) id.path.mtu = mtu;
  id.path.flow_label = req.get(Req::primary_flow_label);
  id.path.traffic_class = static_cast<std::uint8_t>(req.get(Req::primary_traffic_class));
  // Linux's cm converts the timeout to a packet lifetime, which cannot be negative, and back: 0
  // becomes 1. A QP with a timeout of 0 would wait for its acknowledgments forever.
  id.path.ack_timeout =
      static_cast<std::uint8_t>(std::max<std::uint32_t>(req.get(Req::primary_ack_timeout), 1));
  id.has_path = true;
  auto& param = event.content.param.conn;
  param.responder_resources = id.responder_resources;
  param.initiator_depth = id.initiator_depth;
  param.retry_count = id.retry_count;
  param.rnr_retry_count = id.rnr_retry_count;
  param.flow_control = static_cast<std::uint8_t>(req.get(Req::flow_control));
  param.srq = static_cast<std::uint8_t>(req.get(Req::srq));
  param.qp_num = id.remote_qpn;
  put_private_data(param, req.get(Req::private_data).subspan(kCmaHeader));
  event.content.ece = {.vendor_id = req.get(Req::vendor_id), .attr_mod = modifier_of(message.mad)};
}

}  // namespace softhca::rdma_cm
