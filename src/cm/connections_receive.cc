// Messages of the peers.
#include "cm/connections.h"
#include "cm/message.h"
#include "cm/message_writer.h"

namespace softhca::cm {
namespace {

using EventKind = Event::Kind;

/// The meaning of a SIDR_REP (cma_sidr_rep_handler). The connection has a Q_Key if the program has
/// a QP; a SIDR_REP with another one is an error.
EventKind meaning_of(util::View<spec::cm_sidr_rep> rep, const Connection& connection) {
  if (rep.get(spec::cm_sidr_rep::status) != 0) return EventKind::kServiceRefused;
  const auto qkey = rep.get(spec::cm_sidr_rep::qkey);
  const auto own = connection.qp.qkey;
  const bool fits = qkey != 0 && (own == 0 || own == qkey);
  return fits ? EventKind::kServiceResolved : EventKind::kWrongQkey;
}

}  // namespace

void Connections::receive(const Received& message, util::Time now) {
  const auto attribute = attribute_in(message.mad);
  if (!attribute) return;
  if (message.from.is_multicast()) return;  // the answer would go to a group
  switch (*attribute) {
    case cm_attribute::REQ:
      return receive_request(message, false, now);
    case cm_attribute::SIDR_REQ:
      return receive_request(message, true, now);
    case cm_attribute::SIDR_REP:
      return receive_sidr_rep(message);
    default:
      if (const auto input = input_in(message.mad, *attribute)) {
        receive_answer(message, *input, now);
      }
  }
}

void Connections::receive_request(const Received& message, bool datagram, util::Time now) {
  const RequestView request(message.mad, datagram);
  auto* const known = table_.find_request({request.number(), datagram, message.from.bytes});
  if (known != nullptr) return receive_again(*known, message.mad, now);
  const auto response = services_.take(message, request, now);
  if (response != Response::kNone) refuse(message, request, response);
}

void Connections::receive_again(Connection& connection, const Mad& mad, util::Time now) {
  if (!is_datagram(connection)) {
    (void)apply(connection, Input::kReq, &mad, now);
  } else if (connection.state == State::kEstablished) {
    (void)transmitter_.send(connection.exchange.repeated.mad, connection);  // the SIDR_REP was lost
  }
}

void Connections::refuse(const Received& message, const RequestView& request, Response why) {
  const bool no_service = why == Response::kNoService;
  Connection refused;
  refused.peer = message.from;
  refused.local = network_.answers_from(message);
  refused.exchange.transaction = transaction_of(message.mad);
  refused.exchange.remote_comm_id = request.number();
  refused.exchange.service = request.service();
  refused.state = State::kReqRcvd;
  if (request.is_datagram()) {
    send_sidr_rep(refused, no_service ? kSidrNoService : kSidrRejected, 0, {});
  } else {
    using Reason = spec::cm_reject_reason;
    send_rej(refused, number_of(no_service ? Reason::INVALID_SERVICE_ID : Reason::CONSUMER), {});
  }
}

Offer Connections::begin(Connection& connection, const Received& message,
                         const RequestView& request) {
  connection.passive = true;
  connection.qp_type = request.qp_type();
  connection.state = State::kReqRcvd;
  connection.peer = message.from;
  connection.exchange.service = request.service();
  connection.exchange.transaction = transaction_of(message.mad);
  connection.exchange.remote_comm_id = request.number();
  table_.renumber(connection, network_.number_block(connection.local.port));
  table_.add_request(connection);
  if (request.is_datagram()) return {.private_data = request.private_data()};
  return read_req(message.mad, connection);
}

/// All messages except requests have both connection numbers in the same place. The sender must be
/// the peer of the connection, and its own number must match if it is known.
void Connections::receive_answer(const Received& message, Input input, util::Time now) {
  const auto numbers = body_of<spec::cm_rtu>(message.mad);
  auto* found = table_.find(numbers.get(spec::cm_rtu::remote_comm_id));
  if (found == nullptr && input == Input::kRej) found = find_rejected(message);
  if (found == nullptr) {
    if (input == Input::kDreq) {
      (void)network_.send(make_drep_to(message.mad), network_.answers_from(message), message.from);
    }
    return;
  }
  auto& connection = *found;
  const auto remote = numbers.get(spec::cm_rtu::local_comm_id);
  if (connection.peer != message.from || is_datagram(connection)) return;
  const auto known = connection.exchange.remote_comm_id;
  if (known != 0 && known != remote) return;
  const auto dreq = body_of<spec::cm_dreq>(message.mad);
  if (input == Input::kDreq && dreq.get(spec::cm_dreq::remote_qpn) !=
                                   (connection.qp.local_qpn & spec::cm_dreq::remote_qpn.kMax)) {
    return;
  }
  (void)apply(connection, input, &message.mad, now);
}

/// Finds the connection of a peer that gave up its request before it received this side's number.
Connection* Connections::find_rejected(const Received& message) const {
  using Rej = spec::cm_rej;
  const auto rej = body_of<Rej>(message.mad);
  if (rej.get(Rej::reason) != number_of(spec::cm_reject_reason::TIMEOUT)) return nullptr;
  return table_.find_request({rej.get(Rej::local_comm_id), false, message.from.bytes});
}

void Connections::receive_sidr_rep(const Received& message) {
  using Rep = spec::cm_sidr_rep;
  const auto rep = body_of<Rep>(message.mad);
  auto* const found = table_.find(rep.get(Rep::request_id));
  if (found == nullptr) return;
  auto& connection = *found;
  if (connection.state != State::kReqSent) return;
  if (!is_datagram(connection) || connection.peer != message.from) return;
  Transmitter::settle(connection);
  const auto kind = meaning_of(rep, connection);
  const bool resolved = kind == EventKind::kServiceResolved;
  connection.state = resolved ? State::kEstablished : State::kOver;
  if (resolved) read_sidr_rep(message.mad, connection);
  events_.handle(connection, {.kind = kind,
                              .status = rep.get(Rep::status),
                              .offer = {.private_data = rep.get(Rep::private_data)}});
}

}  // namespace softhca::cm
