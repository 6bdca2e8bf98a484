#include "rdma_cm/connection_events.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "cm/message.h"
#include "rdma_cm/events.h"

namespace softhca::rdma_cm {
namespace {

/// The type and status of the program's event. If the peer refuses, the status is the message's and
/// not an errno.
std::pair<EventType, std::int32_t> meaning_of(const cm::Event& event) {
  const auto status = static_cast<std::int32_t>(event.status);
  switch (event.kind) {
    case cm::Event::Kind::kReply:
      return {EventType::kConnectResponse, 0};
    case cm::Event::Kind::kEstablished:
    case cm::Event::Kind::kServiceResolved:
      return {EventType::kEstablished, 0};
    case cm::Event::Kind::kRejected:
      return {EventType::kRejected, status};
    case cm::Event::Kind::kDisconnected:
      return {EventType::kDisconnected, 0};
    case cm::Event::Kind::kLost:
      return {EventType::kDisconnected, -ETIMEDOUT};
    case cm::Event::Kind::kUnreachable:
      return {EventType::kUnreachable, -ETIMEDOUT};
    case cm::Event::Kind::kTimeWaitOver:
      return {EventType::kTimeWaitExit, 0};
    case cm::Event::Kind::kServiceRefused:
      return {EventType::kUnreachable, status};
    case cm::Event::Kind::kWrongQkey:
      return {EventType::kAddrError, -EINVAL};
  }
  return {};
}

/// Describes the peer's UD QP and the path to it.
void put_service(rdma_ucm_ud_param& to, const cm::Connection& connection) {
  to.qp_num = connection.qp.remote_qpn;
  to.qkey = connection.qp.qkey;
  std::memcpy(to.ah_attr.grh.dgid, connection.peer->bytes.data(), 16);
  to.ah_attr.grh.flow_label = connection.path.flow_label;
  to.ah_attr.grh.sgid_index = connection.local.gid_index;
  to.ah_attr.grh.hop_limit = cm::kHopLimit;
  to.ah_attr.grh.traffic_class = connection.path.traffic_class;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
}

}  // namespace

void put_offer(rdma_ucm_event_resp& to, const cm::Offer& offer) {
  auto& param = to.param.conn;
  param.responder_resources = offer.responder_resources;
  param.initiator_depth = offer.initiator_depth;
  param.flow_control = offer.flow_control;
  param.retry_count = offer.retry_count;
  param.rnr_retry_count = offer.rnr_retry_count;
  param.srq = offer.srq;
  param.qp_num = offer.qpn;
  put_private_data(param, offer.private_data);
  to.ece = {.vendor_id = offer.vendor_options.vendor_id,
            .attr_mod = offer.vendor_options.attribute};
}

void ConnectionEvents::handle(const cm::Connection& connection, const cm::Event& event) {
  const auto* const id = identifiers_.find(connection.user);
  if (id == nullptr) return;
  const auto [type, status] = meaning_of(event);
  auto reported = event_of(*id, type, status);
  if (is_datagram(connection)) {
    put_private_data(reported.content.param.ud, event.offer.private_data);
  } else {
    put_offer(reported.content, event.offer);
  }
  if (event.kind == cm::Event::Kind::kServiceResolved) {
    put_service(reported.content.param.ud, connection);
  }
  report(*id, reported);
}

}  // namespace softhca::rdma_cm
