#include "rdma_cm/connection_events.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "rdma_cm/events.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

/// The type and status of the program's event. If the peer refuses, the status is the message's and
/// not an errno.
std::pair<EventType, std::int32_t> meaning_of(const ConnectionEvent& event) {
  const auto status = static_cast<std::int32_t>(event.status);
  switch (event.kind) {
    case ConnectionEvent::Kind::kReply:
      return {EventType::kConnectResponse, 0};
    case ConnectionEvent::Kind::kEstablished:
    case ConnectionEvent::Kind::kServiceResolved:
      return {EventType::kEstablished, 0};
    case ConnectionEvent::Kind::kRejected:
      return {EventType::kRejected, status};
    case ConnectionEvent::Kind::kDisconnected:
      return {EventType::kDisconnected, 0};
    case ConnectionEvent::Kind::kLost:
      return {EventType::kDisconnected, -ETIMEDOUT};
    case ConnectionEvent::Kind::kUnreachable:
      return {EventType::kUnreachable, -ETIMEDOUT};
    case ConnectionEvent::Kind::kTimeWaitOver:
      return {EventType::kTimeWaitExit, 0};
    case ConnectionEvent::Kind::kServiceRefused:
      return {EventType::kUnreachable, status};
    case ConnectionEvent::Kind::kWrongQkey:
      return {EventType::kAddrError, -EINVAL};
  }
  return {};
}

/// Describes the peer's UD QP and the path to it.
void put_service(rdma_ucm_ud_param& to, const Connection& connection) {
  to.qp_num = connection.qp.remote_qpn;
  to.qkey = connection.qp.qkey;
  std::memcpy(to.ah_attr.grh.dgid, connection.peer->bytes.data(), 16);
  to.ah_attr.grh.flow_label = connection.path.flow_label;
  to.ah_attr.grh.sgid_index = connection.local.gid_index;
  to.ah_attr.grh.hop_limit = kHopLimit;
  to.ah_attr.grh.traffic_class = connection.path.traffic_class;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
}

}  // namespace

void put_offer(rdma_ucm_event_resp& to, const Offer& offer) {
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

void ConnectionEvents::handle(const Connection& connection, const ConnectionEvent& event) {
  const auto* const id = identifiers_.find(connection.user);
  if (id == nullptr) return;
  const auto [type, status] = meaning_of(event);
  auto reported = event_of(*id, type, status);
  if (is_datagram(connection)) {
    put_private_data(reported.content.param.ud, event.offer.private_data);
  } else {
    put_offer(reported.content, event.offer);
  }
  if (event.kind == ConnectionEvent::Kind::kServiceResolved) {
    put_service(reported.content.param.ud, connection);
  }
  report(*id, reported);
}

}  // namespace softhca::rdma_cm
