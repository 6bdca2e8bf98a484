#include "cm/connections.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cm/message.h"
#include "cm/message_writer.h"

namespace softhca::cm {
namespace {

using Kind = Event::Kind;

constexpr auto kPeerCheckInterval = std::chrono::seconds(1);

/// `mad`: null if the peer's process was killed.
Event rejection_in(const Mad* mad) {
  using Rej = spec::cm_rej;
  const auto silent = number_of(spec::cm_reject_reason::CONSUMER);
  if (mad == nullptr) return {.kind = Kind::kRejected, .status = silent};
  const auto rej = body_of<Rej>(*mad);
  return {.kind = Kind::kRejected,
          .status = rej.get(Rej::reason),
          .offer = {.private_data = rej.get(Rej::private_data)}};
}

}  // namespace

/// `mad`: null if the input is no message.
bool Connections::apply(Connection& connection, Input input, const Mad* mad, util::Time now) {
  const auto* const transition = find_transition(connection.state, input);
  if (transition == nullptr) return false;
  if (transition->to != connection.state) Transmitter::settle(connection);
  connection.state = transition->to;
  if (connection.state == State::kTimeWait) wait_for_packets(connection, now);
  if (connection.state == State::kOver) table_.forget_request(connection);
  act(connection, transition->action, mad, now);
  return true;
}

void Connections::act(Connection& connection, Action action, const Mad* mad, util::Time now) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kWaitLonger:
      return wait_longer(connection, *mad, now);
    case Action::kSendMra:
      return (void)transmitter_.send(make_mra(connection), connection);
    case Action::kSendRtu:
      return (void)transmitter_.send(make_rtu(connection), connection);
    case Action::kSendDreq:
      return transmitter_.repeat(connection, make_dreq(connection), now);
    case Action::kSendDrep:
      return (void)transmitter_.send(make_drep(connection), connection);
    case Action::kRejectStale:
      return send_rej(connection, number_of(spec::cm_reject_reason::STALE_CONNECTION), {});
    case Action::kReportResponse: {
      const auto offer = read_rep(*mad, connection);
      return events_.handle(connection, {.kind = Kind::kReply, .offer = offer});
    }
    case Action::kReportEstablished:
      return events_.handle(connection, {.kind = Kind::kEstablished});
    case Action::kReportRejected:
      return events_.handle(connection, rejection_in(mad));
    case Action::kReportDisconnected:
      return events_.handle(connection, {.kind = Kind::kDisconnected});
    case Action::kReportLost:
      return events_.handle(connection, {.kind = Kind::kLost});
    case Action::kReportUnreachable:
      return events_.handle(connection, {.kind = Kind::kUnreachable});
  }
}

/// MRA (IBTA 12.6.6): the peer has received the message, and promises an answer within the given
/// time. Only the first MRA after each transmission counts, so a peer cannot delay forever.
void Connections::wait_longer(Connection& connection, const Mad& mad, util::Time now) {
  using Mra = spec::cm_mra;
  constexpr std::uint32_t kLongest = 25;  // two minutes, after which the message is sent again
  if (std::exchange(connection.exchange.repeated.was_told_to_wait, true)) return;
  const auto timeout = body_of<Mra>(mad).get(Mra::service_timeout);
  const auto interval =
      timeout_of(std::min(timeout, kLongest)) + timeout_of(connection.path.ack_timeout);
  transmitter_.postpone(connection, interval, now);
}

/// Enters TimeWait, as its packets may still be in flight (IBTA 12.9.8.4).
void Connections::wait_for_packets(Connection& connection, util::Time now) {
  connection.waits_until = now + timeout_of(connection.path.ack_timeout);
  wakeup_.at(connection.waits_until);
}

void Connections::send_request(Connection& connection, std::uint64_t service, const Offer& offer,
                               util::Time now) {
  connection.state = State::kReqSent;
  table_.renumber(connection, network_.number_block(connection.local.port));
  connection.exchange.transaction = connection.exchange.local_comm_id;
  connection.exchange.service = service;
  const auto request = is_datagram(connection)
                           ? make_sidr_req(connection, offer.private_data)
                           : make_req(connection, offer, network_.node_guid(connection.local.port));
  transmitter_.repeat(connection, request, now);
}

void Connections::send_rep(Connection& connection, const Offer& offer, util::Time now) {
  connection.qp.responder_resources = offer.responder_resources;
  connection.qp.initiator_depth = offer.initiator_depth;
  connection.state = State::kRepSent;
  const auto node_guid = network_.node_guid(connection.local.port);
  transmitter_.repeat(connection, make_rep(connection, offer, node_guid), now);
}

void Connections::send_rej(const Connection& connection, std::uint16_t reason,
                           std::span<const std::byte> private_data) {
  const auto node_guid = network_.node_guid(connection.local.port);
  (void)transmitter_.send(make_rej(connection, reason, private_data, node_guid), connection);
}

void Connections::send_sidr_rep(Connection& connection, std::uint8_t status, std::uint32_t qkey,
                                std::span<const std::byte> private_data) {
  connection.exchange.repeated.mad = make_sidr_rep(connection, status, qkey, private_data);
  (void)transmitter_.send(connection.exchange.repeated.mad, connection);
}

void Connections::reject(Connection& connection, std::uint16_t reason,
                         std::span<const std::byte> private_data) {
  Transmitter::settle(connection);
  send_rej(connection, reason, private_data);
  end(connection);
}

void Connections::end(Connection& connection) {
  connection.state = State::kOver;
  table_.forget_request(connection);
}

void Connections::say_goodbye(Connection& connection, util::Time now) {
  const bool datagram = is_datagram(connection);
  switch (connection.state) {
    case State::kReqSent:
      if (!datagram) send_rej(connection, number_of(spec::cm_reject_reason::TIMEOUT), {});
      return;
    case State::kReqRcvd:
      if (datagram) return send_sidr_rep(connection, kSidrRejected, 0, {});
      [[fallthrough]];
    case State::kRepSent:
    case State::kRepRcvd:
      return send_rej(connection, number_of(spec::cm_reject_reason::CONSUMER), {});
    case State::kEstablished:
      // The QP of an XRC target may outlive its identifier (cm_destroy_id of Linux).
      if (!datagram && connection.qp_type != IB_UVERBS_QPT_XRC_TGT) {
        transmitter_.repeat(connection, make_dreq(connection), now);
      }
      return;
    case State::kDreqRcvd:
      return (void)transmitter_.send(make_drep(connection), connection);
    default:
      return;
  }
}

void Connections::tick(util::Time now) {
  for (const auto& [number, at] : table_.all()) {
    auto& connection = *at;
    const auto& repeated = connection.exchange.repeated;
    if (repeated.next <= now && !transmitter_.retransmit(connection, now)) {
      (void)apply(connection, Input::kTimeout, now);
    }
    if (connection.waits_until <= now) {
      connection.waits_until = util::kNever;
      end(connection);
      events_.handle(connection, {.kind = Kind::kTimeWaitOver});
    }
    wakeup_.at(std::min(repeated.next, connection.waits_until));
  }
}

bool Connections::is_gone(const Connection& connection, const Gone& gone, Found& found) {
  constexpr unsigned kBlockShift = 24;
  const auto number = connection.exchange.remote_comm_id;
  const auto [peer, is_new] = found.try_emplace({connection.peer->bytes, 0});
  if (is_new) peer->second = gone.address && gone.address(*connection.peer);
  const auto block = number >> kBlockShift;  // no format: a range of numbers
  if (peer->second || block == 0 || !gone.number) return peer->second;
  const auto [of_block, is_new_block] = found.try_emplace({connection.peer->bytes, block});
  if (is_new_block) of_block->second = gone.number(*connection.peer, number);
  return of_block->second;
}

void Connections::find_dead_peers(const Gone& gone, util::Time now) {
  if (now - peers_checked_ < kPeerCheckInterval) return;
  peers_checked_ = now;
  Found found;
  for (const auto& [number, at] : table_.all()) {
    auto& connection = *at;
    const auto state = connection.state;
    if (!connection.peer || state < State::kReqSent) continue;
    if (state >= State::kDreqRcvd) continue;
    if (is_datagram(connection) && state != State::kReqSent) continue;
    if (is_gone(connection, gone, found)) handle_death(connection, now);
  }
}

/// Acts as if the peer's kernel had destroyed its identifiers.
void Connections::handle_death(Connection& connection, util::Time now) {
  switch (connection.state) {
    case State::kEstablished:
      // The kernel of an XRC target would not disconnect.
      if (connection.qp_type == IB_UVERBS_QPT_XRC_INI) return;
      return (void)apply(connection, Input::kDreq, now);
    case State::kDreqSent:
      return (void)apply(connection, Input::kDrep, now);
    default:
      if (!is_datagram(connection)) return (void)apply(connection, Input::kRej, now);
      Transmitter::settle(connection);
      connection.state = State::kOver;
      events_.handle(connection, {.kind = Kind::kServiceRefused, .status = kSidrNoService});
  }
}

}  // namespace softhca::cm
