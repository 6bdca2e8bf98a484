#include "rdma_cm/connections.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "rdma_cm/events.h"
#include "rdma_cm/message_reader.h"

namespace softhca::rdma_cm {
namespace {

constexpr auto kLookForGone = std::chrono::seconds(1);

void report_reply(Identifier& id, const Mad& mad) {
  auto event = event_of(id, EventType::kConnectResponse);
  read_rep(mad, id.connection, event.content);
  report(id, event);
}

/// `mad`: null if the peer's process was killed.
void report_rejected(const Identifier& id, const Mad* mad) {
  using Rej = spec::cm_rej;
  const auto silent = number_of(spec::cm_reject_reason::CONSUMER);
  if (mad == nullptr) return report(id, EventType::kRejected, silent);
  const auto rej = body_of<Rej>(*mad);
  auto event = event_of(id, EventType::kRejected, static_cast<std::int32_t>(rej.get(Rej::reason)));
  put_private_data(event.content.param.conn, rej.get(Rej::private_data));
  report(id, event);
}

/// The event of a SIDR_REP and its status (cma_sidr_rep_handler). If the peer refuses, the status
/// is the message's and not an errno. rdma_init_qp_attr() gives an identifier a Q_Key; a SIDR_REP
/// with another one is an error.
std::pair<EventType, std::int32_t> meaning_of(util::View<spec::cm_sidr_rep> rep,
                                              const Identifier& id) {
  const auto status = rep.get(spec::cm_sidr_rep::status);
  if (status != 0) return {EventType::kUnreachable, static_cast<std::int32_t>(status)};
  const auto qkey = rep.get(spec::cm_sidr_rep::qkey);
  const bool fits = qkey != 0 && (id.connection.qp.qkey == 0 || id.connection.qp.qkey == qkey);
  return fits ? std::pair(EventType::kEstablished, 0) : std::pair(EventType::kAddrError, -EINVAL);
}

}  // namespace

/// All messages except requests have both connection numbers in the same place. The sender must be
/// the peer of the connection, and its own number must match if it is known.
void Connections::receive(const Received& message, Input input, util::Time now) {
  const auto numbers = body_of<spec::cm_rtu>(message.mad);
  auto* id = identifiers_.find_connection(numbers.get(spec::cm_rtu::remote_comm_id));
  if (id == nullptr && input == Input::kRej) id = find_rejected(message);
  if (id == nullptr) {
    if (input == Input::kDreq) {
      (void)transmitter_.send(make_drep_to(message.mad), ports_.answers_from(message),
                              message.from);
    }
    return;
  }
  const auto remote = numbers.get(spec::cm_rtu::local_comm_id);
  const auto& connection = id->connection;
  if (connection.peer != message.from || is_datagram(connection)) return;
  const auto known = connection.exchange.remote_comm_id;
  if (known != 0 && known != remote) return;
  const auto dreq = body_of<spec::cm_dreq>(message.mad);
  if (input == Input::kDreq && dreq.get(spec::cm_dreq::remote_qpn) !=
                                   (connection.qp.local_qpn & spec::cm_dreq::remote_qpn.kMax)) {
    return;
  }
  (void)apply(*id, input, &message.mad, now);
}

/// Finds the connection of a peer that gave up its request before it received this side's number.
Identifier* Connections::find_rejected(const Received& message) const {
  using Rej = spec::cm_rej;
  const auto rej = body_of<Rej>(message.mad);
  if (rej.get(Rej::reason) != number_of(spec::cm_reject_reason::TIMEOUT)) return nullptr;
  return identifiers_.find_request({rej.get(Rej::local_comm_id), false, message.from.bytes});
}

void Connections::receive_again(Identifier& id, const Mad& mad, util::Time now) {
  if (!is_datagram(id.connection)) {
    (void)apply(id, Input::kReq, &mad, now);
  } else if (id.connection.state == ConnectionState::kEstablished) {
    (void)transmitter_.send(id.connection.exchange.repeated.mad,
                            id.connection);  // the SIDR_REP was lost
  }
}

/// `mad`: null if the input is no message.
bool Connections::apply(Identifier& id, Input input, const Mad* mad, util::Time now) {
  const auto* const transition = find_transition(id.connection.state, input);
  if (transition == nullptr) return false;
  if (transition->to != id.connection.state) Transmitter::settle(id.connection);
  id.connection.state = transition->to;
  if (id.connection.state == ConnectionState::kTimeWait) wait_for_packets(id, now);
  if (id.connection.state == ConnectionState::kOver) identifiers_.forget_request(id);
  act(id, transition->action, mad, now);
  return true;
}

void Connections::act(Identifier& id, Action action, const Mad* mad, util::Time now) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kWaitLonger:
      return wait_longer(id, *mad, now);
    case Action::kSendMra:
      return (void)transmitter_.send(make_mra(id.connection), id.connection);
    case Action::kSendRtu:
      return (void)transmitter_.send(make_rtu(id.connection), id.connection);
    case Action::kSendDreq:
      return transmitter_.repeat(id.connection, make_dreq(id.connection), now);
    case Action::kSendDrep:
      return (void)transmitter_.send(make_drep(id.connection), id.connection);
    case Action::kRejectStale:
      return send_rej(id.connection, number_of(spec::cm_reject_reason::STALE_CONNECTION), {});
    case Action::kReportResponse:
      return report_reply(id, *mad);
    case Action::kReportEstablished:
      return report(id, EventType::kEstablished);
    case Action::kReportRejected:
      return report_rejected(id, mad);
    case Action::kReportDisconnected:
      return report(id, EventType::kDisconnected);
    case Action::kReportLost:
      return report(id, EventType::kDisconnected, -ETIMEDOUT);
    case Action::kReportUnreachable:
      return report(id, EventType::kUnreachable, -ETIMEDOUT);
  }
}

/// MRA (IBTA 12.6.6): the peer has received the message, and promises an answer within the given
/// time. Only the first MRA after each transmission counts, so a peer cannot delay forever.
void Connections::wait_longer(Identifier& id, const Mad& mad, util::Time now) {
  using Mra = spec::cm_mra;
  constexpr std::uint32_t kLongest = 25;  // two minutes, after which the message is sent again
  if (std::exchange(id.connection.exchange.repeated.was_told_to_wait, true)) return;
  const auto timeout = body_of<Mra>(mad).get(Mra::service_timeout);
  const auto interval =
      cm_time(std::min(timeout, kLongest)) + cm_time(id.connection.path.ack_timeout);
  transmitter_.postpone(id.connection, interval, now);
}

/// Enters TimeWait, as its packets may still be in flight (IBTA 12.9.8.4).
void Connections::wait_for_packets(Identifier& id, util::Time now) {
  id.connection.waits_until = now + cm_time(id.connection.path.ack_timeout);
  wakeup_.at(id.connection.waits_until);
}

void Connections::receive_sidr_rep(const Received& message) {
  using Rep = spec::cm_sidr_rep;
  const auto rep = body_of<Rep>(message.mad);
  auto* const found = identifiers_.find_connection(rep.get(Rep::request_id));
  if (found == nullptr) return;
  auto& id = *found;
  const auto& connection = id.connection;
  if (connection.state != ConnectionState::kReqSent) return;
  if (!is_datagram(connection) || connection.peer != message.from) return;
  Transmitter::settle(id.connection);
  const auto [type, status] = meaning_of(rep, id);
  id.connection.state =
      type == EventType::kEstablished ? ConnectionState::kEstablished : ConnectionState::kOver;
  auto event = event_of(id, type, status);
  auto& param = event.content.param.ud;
  put_private_data(param, rep.get(Rep::private_data));
  if (type == EventType::kEstablished) read_sidr_rep(message.mad, id.connection, param);
  report(id, event);
}

void Connections::send_request(Identifier& id, const rdma_ucm_conn_param& param,
                               const rdma_ucm_ece& ece, const Requester& requester,
                               util::Time now) {
  id.connection.state = ConnectionState::kReqSent;
  id.connection.exchange.transaction = id.connection.exchange.local_comm_id;
  id.connection.exchange.service = service_of(id.port_space, id.destination.port());
  const auto request = is_datagram(id.connection) ? make_sidr_req(id.connection, param, requester)
                                                  : make_req(id.connection, param, ece, requester);
  transmitter_.repeat(id.connection, request, now);
}

void Connections::send_rep(Identifier& id, const rdma_ucm_conn_param& param,
                           const rdma_ucm_ece& ece, util::Time now) {
  id.connection.qp.responder_resources = param.responder_resources;
  id.connection.qp.initiator_depth = param.initiator_depth;
  id.connection.state = ConnectionState::kRepSent;
  transmitter_.repeat(
      id.connection,
      make_rep(id.connection, param, ece, ports_.node_guid(id.connection.local.port)), now);
}

void Connections::send_rej(const Connection& connection, std::uint16_t reason,
                           std::span<const std::byte> private_data) {
  (void)transmitter_.send(
      make_rej(connection, reason, private_data, ports_.node_guid(connection.local.port)),
      connection);
}

void Connections::send_sidr_rep(Connection& connection, std::uint8_t status, std::uint32_t qkey,
                                std::span<const std::byte> private_data) {
  connection.exchange.repeated.mad = make_sidr_rep(connection, status, qkey, private_data);
  (void)transmitter_.send(connection.exchange.repeated.mad, connection);
}

void Connections::reject(Identifier& id, std::uint16_t reason,
                         std::span<const std::byte> private_data) {
  Transmitter::settle(id.connection);
  send_rej(id.connection, reason, private_data);
  end(id);
}

void Connections::end(Identifier& id) {
  id.connection.state = ConnectionState::kOver;
  identifiers_.forget_request(id);
}

void Connections::say_goodbye(Identifier& id, util::Time now) {
  const bool datagram = is_datagram(id.connection);
  switch (id.connection.state) {
    case ConnectionState::kReqSent:
      if (!datagram) send_rej(id.connection, number_of(spec::cm_reject_reason::TIMEOUT), {});
      return;
    case ConnectionState::kReqRcvd:
      if (datagram) return send_sidr_rep(id.connection, kSidrRejected, 0, {});
      [[fallthrough]];
    case ConnectionState::kRepSent:
    case ConnectionState::kRepRcvd:
      return send_rej(id.connection, number_of(spec::cm_reject_reason::CONSUMER), {});
    case ConnectionState::kEstablished:
      // The QP of an XRC target may outlive its identifier (cm_destroy_id of Linux).
      if (!datagram && id.connection.qp_type != IB_UVERBS_QPT_XRC_TGT) {
        transmitter_.repeat(id.connection, make_dreq(id.connection), now);
      }
      return;
    case ConnectionState::kDreqRcvd:
      return (void)transmitter_.send(make_drep(id.connection), id.connection);
    default:
      return;
  }
}

void Connections::tick(util::Time now) {
  for (const auto& [number, id] : identifiers_.all()) {
    auto& connection = id->connection;
    const auto& repeated = connection.exchange.repeated;
    if (repeated.next <= now && !transmitter_.retransmit(connection, now)) {
      (void)apply(*id, Input::kTimeout, now);
    }
    if (connection.waits_until <= now) {
      connection.waits_until = util::kNever;
      end(*id);
      report(*id, EventType::kTimeWaitExit);
    }
    wakeup_.at(std::min(repeated.next, connection.waits_until));
  }
}

void Connections::look_for_the_gone(util::Time now) {
  if (!options_.is_gone || now - looked_for_gone_ < kLookForGone) return;
  looked_for_gone_ = now;
  std::map<std::array<std::byte, 16>, bool> peers;
  for (const auto& [number, id] : identifiers_.all()) {
    const auto& connection = id->connection;
    const auto state = connection.state;
    if (!connection.peer || state < ConnectionState::kReqSent) continue;
    if (state >= ConnectionState::kDreqRcvd) continue;
    if (is_datagram(connection) && state != ConnectionState::kReqSent) continue;
    const auto [at, is_new] = peers.try_emplace(connection.peer->bytes);
    if (is_new) at->second = options_.is_gone(*connection.peer);
    if (at->second) handle_death(*id, now);
  }
}

/// Acts as if the peer's kernel had destroyed its identifiers.
void Connections::handle_death(Identifier& id, util::Time now) {
  switch (id.connection.state) {
    case ConnectionState::kEstablished:
      // The kernel of an XRC target would not disconnect.
      if (id.connection.qp_type == IB_UVERBS_QPT_XRC_INI) return;
      return (void)apply(id, Input::kDreq, now);
    case ConnectionState::kDreqSent:
      return (void)apply(id, Input::kDrep, now);
    default:
      if (!is_datagram(id.connection)) return (void)apply(id, Input::kRej, now);
      Transmitter::settle(id.connection);
      id.connection.state = ConnectionState::kOver;
      report(id, EventType::kUnreachable, kSidrNoService);
  }
}

}  // namespace softhca::rdma_cm
