#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cm/message.h"
#include "rdma_cm/commands.h"
#include "rdma_cm/ip_service.h"
#include "uverbs/qp_attributes.h"

namespace softhca::rdma_cm {
namespace {

/// Private data of the program in REQ and SIDR_REQ, behind the header of Annex A11.
constexpr std::size_t kPrivateDataMax = spec::cm_req::private_data.kSize - kCmaHeader;
constexpr std::size_t kDatagramPrivateDataMax = spec::cm_sidr_req::private_data.kSize - kCmaHeader;

/// The default of Linux's net.rdma_ucm.max_backlog.
constexpr std::uint32_t kBacklogMax = 1024;

using enum uverbs::QpMask;
using enum uverbs::QpState;

/// The offer of the program. Its private data may be longer than a message allows.
cm::Offer offer_of(const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece) {
  return {
      .responder_resources = param.responder_resources,
      .initiator_depth = param.initiator_depth,
      .retry_count = param.retry_count,
      .rnr_retry_count = param.rnr_retry_count,
      .flow_control = param.flow_control,
      .srq = param.srq != 0,
      .vendor_options = {.vendor_id = ece.vendor_id, .attribute = ece.attr_mod},
      .private_data = std::as_bytes(std::span(param.private_data)).first(param.private_data_len)};
}

/// Whether Linux's ib_cm has an object for it (cm_id.ib of cma.c): it sent or received a request,
/// or listens on a device.
bool is_of_connections(const Identifier& id) {
  return id.has_device && (id.state == State::kConnecting || id.state == State::kListening);
}

/// Whether its QP answers reads and atomics reliably.
bool is_responder(const cm::Connection& connection) {
  const auto type = connection.qp_type;
  return type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_TGT;
}
/// Whether its QP makes reliable requests.
bool is_requester(const cm::Connection& connection) {
  const auto type = connection.qp_type;
  return type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI;
}
/// Whether a REQ can be sent for its QP (cm_validate_req_param).
bool is_client_type(std::uint8_t qp_type) {
  return qp_type == IB_UVERBS_QPT_RC || qp_type == IB_UVERBS_QPT_UC ||
         qp_type == IB_UVERBS_QPT_XRC_INI;
}

/// Attributes of a QP in INIT.
void describe_access(const cm::Connection& connection, ib_uverbs_qp_attr& out) {
  using enum uverbs::QpAccess;
  out.qp_access_flags = kQpRemoteWrite;
  if (connection.qp.responder_resources != 0) {
    out.qp_access_flags |= kQpRemoteRead | kQpRemoteAtomic;
  }
}

/// Attributes of a QP in RTR.
void describe_receiver(const cm::Connection& connection, ib_uverbs_qp_attr& out) {
  out.qp_attr_mask |= kQpPath | kQpMtu | kQpDestQpn | kQpRqPsn;
  if (is_responder(connection)) out.qp_attr_mask |= kQpMaxDestReads | kQpMinRnr;
  std::memcpy(out.ah_attr.grh.dgid, connection.peer->bytes.data(), 16);
  out.ah_attr.grh.sgid_index = connection.local.gid_index;
  out.ah_attr.grh.flow_label = connection.path.flow_label;
  out.ah_attr.grh.traffic_class = connection.path.traffic_class;
  out.ah_attr.grh.hop_limit = cm::kHopLimit;
  out.ah_attr.is_global = 1;
  out.ah_attr.port_num = 1;
  out.path_mtu = connection.path.mtu;
  out.dest_qp_num = connection.qp.remote_qpn;
  out.rq_psn = connection.qp.local_psn;
  if (is_responder(connection)) out.max_dest_rd_atomic = connection.qp.responder_resources;
}

/// Attributes of a QP in RTS.
void describe_sender(const Identifier& id, ib_uverbs_qp_attr& out) {
  const auto& connection = id.connection;
  out.qp_attr_mask |= kQpSqPsn;
  out.sq_psn = connection.qp.remote_psn;
  if (!is_requester(connection) && !is_responder(connection)) return;
  // rdma_init_qp_attr: the program's value overrides that of the path.
  out.timeout = id.route.wanted_ack_timeout.value_or(connection.path.ack_timeout);
  out.qp_attr_mask |= kQpTimeout;
  if (!is_requester(connection)) return;
  out.qp_attr_mask |= kQpRetry | kQpRnrRetry | kQpMaxReads;
  out.retry_cnt = connection.qp.retry_count;
  out.rnr_retry = connection.qp.rnr_retry_count;
  out.max_rd_atomic = connection.qp.initiator_depth;
}

}  // namespace

Errno ConnectionCommands::connect(const Call& call) {
  const auto command = take<rdma_ucm_connect>(call.in);
  const auto& param = command.conn_param;
  if (param.valid == 0) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (id->state != State::kRouteResolved) return EINVAL;
  if (!is_datagram(id->connection) && !is_client_type(id->connection.qp_type)) return EINVAL;
  if (param.private_data_len >
      (is_datagram(id->connection) ? kDatagramPrivateDataMax : kPrivateDataMax)) {
    return EINVAL;
  }
  // A program on this machine may have begun to listen since the destination was resolved.
  const auto peer = routes_.resolve(*id);
  if (!peer) return ENETUNREACH;
  routes_.set_peer(*id, *peer);
  auto offer = offer_of(param, command.ece);
  auto& qp = id->connection.qp;
  qp.local_qpn = param.qp_num;
  qp.responder_resources = offer.responder_resources;
  qp.initiator_depth = offer.initiator_depth;
  qp.retry_count = std::min<std::uint8_t>(offer.retry_count, 7);
  qp.rnr_retry_count = std::min<std::uint8_t>(offer.rnr_retry_count, 7);
  std::array<std::byte, kCmaHeader + kDatagramPrivateDataMax> bytes{};
  std::ranges::copy(offer.private_data, std::span(bytes).subspan(kCmaHeader).begin());
  offer.private_data = std::span(bytes).first(kCmaHeader + offer.private_data.size());
  write_addresses(bytes, routes_.addresses(*id));
  id->state = State::kConnecting;
  const auto service = service_of(id->port_space, id->destination.port());
  connections_.send_request(id->connection, service, offer, call.now);
  return 0;
}

Errno ConnectionCommands::listen(const Call& call) {
  const auto command = take<rdma_ucm_listen>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  // Linux sets the backlog even if it already listens, which is an error.
  id->backlog = command.backlog == 0 ? kBacklogMax : std::min(command.backlog, kBacklogMax);
  if (id->state != State::kIdle) return EINVAL;
  if (!id->has_source()) {
    const auto any = SocketAddress::any(AF_INET);
    if (const auto wrong = bindings_.bind(*id, any); wrong != 0) return wrong;
  }
  if (id->binding.reuses_port) {
    // A listener owns its number alone.
    if (const auto wrong = bindings_.check_port(*id, false); wrong != 0) return wrong;
    id->binding.reuses_port = false;
  }
  if (const auto wrong = bindings_.listen(*id); wrong != 0) return wrong;
  id->state = State::kListening;
  listeners_.serve_held(false, call.now);
  return 0;
}

Errno ConnectionCommands::accept(const Call& call) {
  const auto command = take<rdma_ucm_accept>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  const auto& param = command.conn_param;
  if (param.valid == 0 && !is_datagram(id->connection)) {
    return connections_.apply(id->connection, cm::Input::kAccept, call.now) ? 0
                                                                            : fail_to_accept(*id);
  }
  if (id->connection.state != cm::State::kReqRcvd) return fail_to_accept(*id);
  const auto uid_before = id->uid;
  if (param.valid != 0) {
    id->uid = command.uid;
    id->connection.qp.local_qpn = param.qp_num;
  }
  const auto wrong = accept_request(*id, param, command.ece, call.now);
  if (wrong != 0) id->uid = uid_before;
  return wrong;
}

/// rdma_accept() of Linux rejects the peer after any error, even if the program has accepted it
/// before. A connection that is established goes on, and datagrams are left alone.
Errno ConnectionCommands::fail_to_accept(Identifier& id) {
  const auto state = id.connection.state;
  const bool is_begun = state >= cm::State::kReqSent && state <= cm::State::kRepRcvd;
  if (is_datagram(id.connection) || !is_begun) return EINVAL;
  connections_.reject(id.connection, cm::number_of(spec::cm_reject_reason::CONSUMER), {});
  return EINVAL;
}

/// A message holds less private data than the program may pass. If it does not fit, the peer is
/// refused, as on Linux.
Errno ConnectionCommands::accept_request(Identifier& id, const rdma_ucm_conn_param& param,
                                         const rdma_ucm_ece& ece, util::Time now) {
  const auto offer = offer_of(param, ece);
  const auto data = offer.private_data;
  if (is_datagram(id.connection)) {
    const bool fits = data.size() <= spec::cm_sidr_rep::private_data.kSize;
    id.connection.state = fits ? cm::State::kEstablished : cm::State::kOver;
    if (fits) {
      id.connection.qp.qkey =
          kDefaultQkey;  // with IP addresses Linux ignores the program's (ucma_copy_conn_param)
      connections_.send_sidr_rep(id.connection, 0, id.connection.qp.qkey, data);
    } else {
      connections_.send_sidr_rep(id.connection, cm::kSidrRejected, 0, {});
    }
    return fits ? 0 : EINVAL;
  }
  if (data.size() > spec::cm_rep::private_data.kSize) return fail_to_accept(id);
  connections_.send_rep(id.connection, offer, now);
  return 0;
}

Errno ConnectionCommands::reject(const Call& call) {
  const auto command = take<rdma_ucm_reject>(call.in);
  const auto consumer = cm::number_of(spec::cm_reject_reason::CONSUMER);
  const std::uint16_t reason = command.reason != 0 ? command.reason : consumer;
  if (reason != consumer && reason != cm::number_of(spec::cm_reject_reason::VENDOR_OPTION)) {
    return EINVAL;
  }
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  const auto data = std::as_bytes(std::span(command.private_data)).first(command.private_data_len);
  if (is_datagram(id->connection)) {
    if (id->connection.state != cm::State::kReqRcvd) return EINVAL;
    if (data.size() > spec::cm_sidr_rep::private_data.kSize) return EINVAL;
    connections_.send_sidr_rep(id->connection, cm::kSidrRejected, 0, data);
    connections_.end(id->connection);
  } else {
    // As in Linux, the active side may take its request back; the peer is not named in that REJ.
    const auto state = id->connection.state;
    if (state < cm::State::kReqSent || state > cm::State::kRepRcvd) return EINVAL;
    if (data.size() > spec::cm_rej::private_data.kSize) return EINVAL;
    connections_.reject(id->connection, reason, data);
  }
  return 0;
}

/// The peer may have disconnected first, or there may be no connection yet: neither is an error.
Errno ConnectionCommands::disconnect(const Call& call) {
  const auto command = take<rdma_ucm_disconnect>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (!is_of_connections(*id)) return EINVAL;
  if (is_datagram(id->connection)) return 0;
  (void)connections_.apply(id->connection, cm::Input::kDisconnect, call.now);
  return 0;
}

namespace {

/// Whether the manager sets attributes for a QP's transition to `qp_state` (cm_init_qp_init_attr
/// and its siblings in ib_cm).
bool describes_qp(cm::State state, std::uint32_t qp_state) {
  const bool has_request = state >= cm::State::kReqRcvd && state <= cm::State::kEstablished;
  if (qp_state == kQpInit) return has_request || state == cm::State::kReqSent;
  return has_request && (qp_state == kQpRtr || qp_state == kQpRts);
}

}  // namespace

/// The QP attributes for the transition to `qp_state` (kernel interface 8.2). Without a
/// connection they are the same for each state (cma_ib_init_qp_attr).
Errno ConnectionCommands::init_qp_attr(const Call& call) {
  const auto command = take<rdma_ucm_init_qp_attr>(call.in);
  if (command.qp_state > kQpError) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (!id->has_device) return EINVAL;
  ib_uverbs_qp_attr out{};
  out.qp_state = command.qp_state;
  out.qp_attr_mask = kQpState;
  const bool is_connected = !is_datagram(id->connection) && is_of_connections(*id);
  if (is_connected && !describes_qp(id->connection.state, command.qp_state)) return EINVAL;
  if (!is_connected || command.qp_state == kQpInit) {
    if (is_datagram(id->connection)) id->connection.qp.qkey = kDefaultQkey;
    out.port_num = 1;
    out.qkey = id->connection.qp.qkey;
    out.qp_attr_mask |= kQpPkey | kQpPort | (is_datagram(id->connection) ? kQpQkey : kQpAccess);
    if (is_connected) describe_access(id->connection, out);
  } else if (command.qp_state == kQpRtr) {
    describe_receiver(id->connection, out);
  } else {
    describe_sender(*id, out);
  }
  return call.answer(command.response, out);
}

/// ib_cm_notify() of Linux: the QP received data before the peer's RTU, or it has migrated its
/// path.
Errno ConnectionCommands::notify(const Call& call) {
  constexpr std::uint32_t kCommunicationEstablished = 4, kPathMigrated = 6;  // ib_event_type
  const auto command = take<rdma_ucm_notify>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (id->state != State::kConnecting || is_datagram(id->connection)) return EINVAL;
  const bool established = id->connection.state == cm::State::kEstablished;
  if (command.event == kPathMigrated) return established ? 0 : EINVAL;
  if (command.event != kCommunicationEstablished) return EINVAL;
  if (established) return EISCONN;
  if (id->connection.state != cm::State::kRepSent) return EINVAL;
  (void)connections_.apply(id->connection, cm::Input::kRtu, call.now);
  return 0;
}

}  // namespace softhca::rdma_cm
