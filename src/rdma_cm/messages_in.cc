// What other communication managers say to us. They are anybody: what does not fit is passed over.
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstring>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

using Header = spec::mad_header;

driver::Gid address_in(std::span<const std::byte> at, bool ipv4) {
  driver::Gid gid{};
  std::ranges::copy(at, gid.bytes.begin());
  if (ipv4) util::store_be16(gid.bytes.data() + 10, 0xffff);
  return gid;
}

/// To which address a request goes, as the one that sends it knows us.
driver::Gid destination_in(std::span<const std::byte> private_data) {
  const util::View<spec::cma_header> cma(private_data.first<kCmaHeader>());
  return address_in(cma.get(spec::cma_header::destination),
                    cma.get(spec::cma_header::ip_version) == 4);
}

}  // namespace

void Manager::handle_mad(const Mad& mad, const driver::Gid& from, unsigned port) {
  const util::View<Header> head(std::span<const std::byte>(mad).first(Header::kSize));
  if (head.get(Header::base_version) != 1 || head.get(Header::mgmt_class) != 7) return;
  switch (static_cast<cm_attribute>(head.get(Header::attribute_id))) {
    case cm_attribute::REQ:
      return handle_request(mad, from, port);
    case cm_attribute::REP:
      return handle_reply(mad);
    case cm_attribute::RTU:
      return handle_ready(mad);
    case cm_attribute::REJ:
      return handle_reject(mad);
    case cm_attribute::DREQ:
      return handle_disconnect(mad, from, port);
    case cm_attribute::DREP:
      return handle_disconnected(mad);
    case cm_attribute::SIDR_REQ:
      return handle_sidr_request(mad, from, port);
    case cm_attribute::SIDR_REP:
      return handle_sidr_reply(mad);
    case cm_attribute::MRA:
      return handle_mra(mad);
    default:
      return;
  }
}

Manager::Id* Manager::by_local(std::uint32_t comm_id) {
  const auto at = ids_.find(comm_id - comm_id_base_);
  return at == ids_.end() ? nullptr : at->second.get();
}

Manager::Id* Manager::by_remote(std::uint32_t comm_id, const driver::Gid& from) {
  for (const auto& [number, id] : ids_) {
    if (id->remote_comm_id == comm_id && id->peer == from) return id.get();
  }
  return nullptr;
}

/// Who listens for a service at an address, or else on all devices or on this one; null if nobody
/// does.
Manager::Id* Manager::find_listener(std::uint64_t service, unsigned port,
                                    const driver::Gid& to) const {
  Id* found = nullptr;
  for (const auto& [number, id] : ids_) {
    if (id->state != State::kListening || (id->bound && id->local.port != port)) continue;
    if (service_of(id->port_space, id->source.port()) != service) continue;
    if (id->source.gid() == to) return id.get();
    if (id->one_family && (id->source.family() == AF_INET) != to.is_ipv4()) continue;
    if (found == nullptr) found = id.get();
  }
  return found;
}

/// The new identifier of a request to a service that is listened for. @pre its.backlog != 0
Manager::Id& Manager::accept_from(const Mad& mad, const driver::Gid& from, unsigned port, Id& its,
                                  Bytes private_data) {
  --its.backlog;
  const util::View<spec::cma_header> cma(private_data.first<kCmaHeader>());
  const bool ipv4 = cma.get(spec::cma_header::ip_version) == 4;
  auto& id = make(*its.channel);
  id.port_space = its.port_space;
  id.qp_type = its.qp_type;
  id.state = State::kReqReceived;
  id.has_device = true;
  id.peer = from;
  id.path_mtu = path_mtu(from);
  id.service = service_of(its.port_space, its.source.port());
  id.transaction = transaction_of(mad);
  const auto to = destination_in(private_data);
  const auto own = find_local(to);
  id.local = own && own->port == port ? *own : local_for(from, port);
  id.source = SocketAddress::of(to, its.source.port());
  id.destination = SocketAddress::of(address_in(cma.get(spec::cma_header::source), ipv4),
                                     static_cast<std::uint16_t>(cma.get(spec::cma_header::port)));
  // Told to whom listens: his program gives it a name when it accepts.
  Event event;
  event.counted_for = its.number;
  event.content.uid = its.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(EventType::kConnectRequest);
  const auto data = private_data.subspan(kCmaHeader);
  if (is_datagram(id)) {
    auto& param = event.content.param.ud;
    param.private_data_len = static_cast<std::uint8_t>(data.size());
    std::memcpy(param.private_data, data.data(), data.size());
  } else {
    using Req = spec::cm_req;
    const auto req = body_of<Req>(mad);
    id.remote_comm_id = req.get(Req::local_comm_id);
    id.remote_qpn = req.get(Req::local_qpn);
    id.remote_psn = req.get(Req::starting_psn);
    id.responder_resources = static_cast<std::uint8_t>(req.get(Req::initiator_depth));
    id.initiator_depth = static_cast<std::uint8_t>(req.get(Req::responder_resources));
    id.retry_count = static_cast<std::uint8_t>(req.get(Req::retry_count));
    id.rnr_retry_count = static_cast<std::uint8_t>(req.get(Req::rnr_retry));
    const auto mtu = static_cast<std::uint8_t>(req.get(Req::path_mtu));
    if (mtu != 0 && mtu <= kMtu4096) id.path_mtu = mtu;
    auto& param = event.content.param.conn;
    param.responder_resources = id.responder_resources;
    param.initiator_depth = id.initiator_depth;
    param.retry_count = id.retry_count;
    param.rnr_retry_count = id.rnr_retry_count;
    param.flow_control = static_cast<std::uint8_t>(req.get(Req::flow_control));
    param.srq = static_cast<std::uint8_t>(req.get(Req::srq));
    param.qp_num = id.remote_qpn;
    param.private_data_len = static_cast<std::uint8_t>(data.size());
    std::memcpy(param.private_data, data.data(), data.size());
  }
  its.channel->push(event);
  return id;
}

bool Manager::was_just_left(std::uint64_t service) const {
  const auto at = left_.find(service);
  return at != left_.end() && options_.clock() - at->second < kListenAgain;
}

void Manager::handle_request(const Mad& mad, const driver::Gid& from, unsigned port) {
  using Req = spec::cm_req;
  const auto req = body_of<Req>(mad);
  // Once more what was heard already: the reply is repeated by itself.
  if (by_remote(req.get(Req::local_comm_id), from) != nullptr) return;
  const auto to = destination_in(req.get(Req::private_data));
  auto* const listener = find_listener(req.get(Req::service_id), port, to);
  if (listener != nullptr) {
    // As Linux: more than its program wants to wait are not heard, and ask again.
    if (listener->backlog == 0) return;
    // The program takes its time.
    return send_mra(accept_from(mad, from, port, *listener, req.get(Req::private_data)));
  }
  if (was_just_left(req.get(Req::service_id))) return;
  Id nobody;
  nobody.peer = from;
  nobody.local = local_for(from, port);
  nobody.transaction = transaction_of(mad);
  nobody.remote_comm_id = req.get(Req::local_comm_id);
  send_reject(nobody, static_cast<std::uint16_t>(spec::cm_reject_reason::INVALID_SERVICE_ID), {});
}

/// IBTA 12.6.6: it was heard, and will be answered within the time that is told.
void Manager::handle_mra(const Mad& mad) {
  using Mra = spec::cm_mra;
  const auto mra = body_of<Mra>(mad);
  auto* id = by_local(mra.get(Mra::remote_comm_id));
  if (id == nullptr || id->repeated.next == util::kNever) return;
  const bool of_request = id->state == State::kReqSent && mra.get(Mra::message) == 0;
  const bool of_reply = id->state == State::kRepSent && mra.get(Mra::message) == 1;
  if (!of_request && !of_reply) return;
  constexpr unsigned kLongest = 25;  // two minutes: the program is told then that nobody answers
  const auto exponent = std::min<unsigned>(mra.get(Mra::service_timeout), kLongest);
  const std::chrono::nanoseconds wait(std::uint64_t{4096} << exponent);
  id->repeated.next = options_.clock() + std::chrono::duration_cast<util::Duration>(wait);
}

void Manager::handle_reply(const Mad& mad) {
  using Rep = spec::cm_rep;
  const auto rep = body_of<Rep>(mad);
  auto* id = by_local(rep.get(Rep::remote_comm_id));
  if (id == nullptr) return;
  if (id->state == State::kEstablished) return send_ready(*id);  // it did not hear of it
  if (id->state != State::kReqSent) return;
  settle(*id);
  id->state = State::kRepReceived;
  id->remote_comm_id = rep.get(Rep::local_comm_id);
  id->remote_qpn = rep.get(Rep::local_qpn);
  id->remote_psn = rep.get(Rep::starting_psn);
  id->responder_resources = static_cast<std::uint8_t>(rep.get(Rep::initiator_depth));
  id->initiator_depth = static_cast<std::uint8_t>(rep.get(Rep::responder_resources));
  id->rnr_retry_count = static_cast<std::uint8_t>(rep.get(Rep::rnr_retry));
  tell_connection(*id, EventType::kConnectResponse, 0, rep.get(Rep::private_data));
}

void Manager::handle_ready(const Mad& mad) {
  auto* id = by_local(body_of<spec::cm_rtu>(mad).get(spec::cm_rtu::remote_comm_id));
  if (id == nullptr || id->state != State::kRepSent) return;
  settle(*id);
  id->state = State::kEstablished;
  tell_connection(*id, EventType::kEstablished, 0, {});
}

void Manager::handle_reject(const Mad& mad) {
  using Rej = spec::cm_rej;
  const auto rej = body_of<Rej>(mad);
  auto* id = by_local(rej.get(Rej::remote_comm_id));
  if (id == nullptr || (id->state != State::kReqSent && id->state != State::kRepSent)) return;
  settle(*id);
  id->state = State::kOver;
  tell_connection(*id, EventType::kRejected, static_cast<std::int32_t>(rej.get(Rej::reason)),
                  rej.get(Rej::private_data));
}

void Manager::handle_disconnect(const Mad& mad, const driver::Gid& from, unsigned port) {
  using Dreq = spec::cm_dreq;
  const auto dreq = body_of<Dreq>(mad);
  Message<spec::cm_rtu> answer_to(cm_attribute::DREP, transaction_of(mad));
  answer_to.body().set(spec::cm_rtu::local_comm_id, dreq.get(Dreq::remote_comm_id));
  answer_to.body().set(spec::cm_rtu::remote_comm_id, dreq.get(Dreq::local_comm_id));
  send(answer_to.mad(), local_for(from, port), from);
  auto* id = by_local(dreq.get(Dreq::remote_comm_id));
  if (id == nullptr || id->peer != from || id->state == State::kOver ||
      id->state < State::kRepSent) {
    return;
  }
  end_connection(*id);
}

void Manager::handle_disconnected(const Mad& mad) {
  auto* id = by_local(body_of<spec::cm_rtu>(mad).get(spec::cm_rtu::remote_comm_id));
  if (id == nullptr || id->state != State::kDreqSent) return;
  end_connection(*id);
}

void Manager::handle_sidr_request(const Mad& mad, const driver::Gid& from, unsigned port) {
  using Req = spec::cm_sidr_req;
  const auto req = body_of<Req>(mad);
  const auto request = req.get(Req::request_id);
  // Once more what was heard already: so the answer was not.
  if (const auto* heard = by_remote(request, from); heard != nullptr) {
    if (heard->state == State::kEstablished) send(heard->repeated.mad, *heard);
    return;
  }
  const auto to = destination_in(req.get(Req::private_data));
  auto* const listener = find_listener(req.get(Req::service_id), port, to);
  if (listener != nullptr && listener->backlog != 0) {
    accept_from(mad, from, port, *listener, req.get(Req::private_data)).remote_comm_id = request;
    return;
  }
  if (listener == nullptr && was_just_left(req.get(Req::service_id))) return;
  Id nobody;
  nobody.peer = from;
  nobody.local = local_for(from, port);
  nobody.transaction = transaction_of(mad);
  nobody.remote_comm_id = request;
  nobody.service = req.get(Req::service_id);
  // As Linux: more than its program wants to wait are refused.
  send_sidr_reply(nobody, listener == nullptr ? kSidrNoService : kSidrRejected, {});
}

void Manager::handle_sidr_reply(const Mad& mad) {
  using Rep = spec::cm_sidr_rep;
  const auto rep = body_of<Rep>(mad);
  auto* id = by_local(rep.get(Rep::request_id));
  if (id == nullptr || id->state != State::kReqSent || !is_datagram(*id)) return;
  settle(*id);
  const auto status = rep.get(Rep::status);
  id->state = status == 0 ? State::kEstablished : State::kOver;
  id->remote_qpn = rep.get(Rep::qpn);
  // The status of the message, not an errno: as cma_sidr_rep_handler() of Linux tells it.
  auto event = event_of(*id, status == 0 ? EventType::kEstablished : EventType::kUnreachable,
                        static_cast<std::int32_t>(status));
  auto& param = event.content.param.ud;
  param.qp_num = id->remote_qpn;
  param.qkey = rep.get(Rep::qkey);
  std::memcpy(param.ah_attr.grh.dgid, id->peer->bytes.data(), 16);
  param.ah_attr.grh.sgid_index = id->local.gid_index;
  param.ah_attr.grh.hop_limit = kHopLimit;
  param.ah_attr.is_global = 1;
  param.ah_attr.port_num = 1;
  const auto data = rep.get(Rep::private_data);
  param.private_data_len = static_cast<std::uint8_t>(data.size());
  std::memcpy(param.private_data, data.data(), data.size());
  id->channel->push(event);
}

}  // namespace softhca::rdma_cm
