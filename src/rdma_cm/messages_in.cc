// Received messages: about connections, and answers to requests of this manager. Any host may send
// them, so messages that match nothing are ignored.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma_cm/manager.h"
#include "rdma_cm/message_reader.h"

namespace softhca::rdma_cm {

void Manager::hear(const Received& message) {
  const auto attribute = attribute_in(message.mad);
  if (!attribute) return;
  if (message.from.is_multicast()) return;  // the answer would go to a group
  switch (*attribute) {
    case cm_attribute::REQ:
      return hear_request(message, false);
    case cm_attribute::SIDR_REQ:
      return hear_request(message, true);
    case cm_attribute::SIDR_REP:
      return hear_sidr_reply(message);
    default:
      if (const auto heard = heard_in(message.mad, *attribute)) hear_of_connection(message, *heard);
  }
}

/// All messages except requests have both connection numbers in the same place. The sender must be
/// the peer of the connection, and its own number must match if it is known.
void Manager::hear_of_connection(const Received& message, Heard heard) {
  const auto numbers = body_of<spec::cm_rtu>(message.mad);
  auto* id = identifiers_.find_connection(numbers.get(spec::cm_rtu::remote_comm_id));
  if (id == nullptr && heard == Heard::kRej) id = find_rejected(message);
  if (id == nullptr) {
    if (heard == Heard::kDreq) {
      (void)transmitter_.send(make_drep_to(message.mad), ports_->answers_from(message),
                              message.from);
    }
    return;
  }
  const auto remote = numbers.get(spec::cm_rtu::local_comm_id);
  if (id->peer != message.from || is_datagram(*id)) return;
  if (id->remote_comm_id != 0 && id->remote_comm_id != remote) return;
  const auto dreq = body_of<spec::cm_dreq>(message.mad);
  if (heard == Heard::kDreq && dreq.get(spec::cm_dreq::remote_qpn) != (id->local_qpn & 0xffffff)) {
    return;
  }
  apply(*id, heard, &message);
}

/// Finds the connection of a peer that gave up its request before it received this side's number.
Manager::Id* Manager::find_rejected(const Received& message) {
  using Rej = spec::cm_rej;
  const auto rej = body_of<Rej>(message.mad);
  if (rej.get(Rej::reason) != number_of(spec::cm_reject_reason::TIMEOUT)) return nullptr;
  return identifiers_.find_request({rej.get(Rej::local_comm_id), false, message.from.bytes});
}

/// `message`: null if the event is known without a message.
void Manager::apply(Id& id, Heard heard, const Received* message) {
  const auto* const transition = find_transition(id.state, heard);
  if (transition == nullptr) return;
  if (transition->to != id.state) Transmitter::settle(id);
  id.state = transition->to;
  if (id.state == State::kTimeWait) wait_for_packets(id);
  if (id.state == State::kOver) identifiers_.forget_request(id);
  act(id, transition->action, message);
}

void Manager::act(Id& id, Action action, const Received* message) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kWaitLonger:
      return wait_longer(id, *message);
    case Action::kSendMra:
      return (void)transmitter_.send(make_mra(id), id);
    case Action::kSendRtu:
      return (void)transmitter_.send(make_rtu(id), id);
    case Action::kSendDrep:
      return (void)transmitter_.send(make_drep(id), id);
    case Action::kRejectStale:
      return send_reject(id, number_of(spec::cm_reject_reason::STALE_CONNECTION), {});
    case Action::kReportResponse:
      return report_reply(id, *message);
    case Action::kReportEstablished:
      return report(id, EventType::kEstablished);
    case Action::kReportRejected:
      return report_rejected(id, message);
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
void Manager::wait_longer(Id& id, const Received& message) {
  using Mra = spec::cm_mra;
  constexpr std::uint32_t kLongest = 25;  // two minutes, after which the message is sent again
  if (std::exchange(id.repeated.was_told_to_wait, true)) return;
  const auto timeout = body_of<Mra>(message.mad).get(Mra::service_timeout);
  const auto interval = cm_time(std::min(timeout, kLongest)) + cm_time(id.path.ack_timeout);
  transmitter_.postpone(id, interval, now_);
}

void Manager::report_reply(Id& id, const Received& message) {
  auto event = event_of(id, EventType::kConnectResponse);
  read_rep(message.mad, id, event.content);
  report(id, event);
}

void Manager::report_rejected(Id& id, const Received* message) {
  using Rej = spec::cm_rej;
  const auto silent = number_of(spec::cm_reject_reason::CONSUMER);
  if (message == nullptr) return report(id, EventType::kRejected, silent);
  const auto rej = body_of<Rej>(message->mad);
  auto event = event_of(id, EventType::kRejected, static_cast<std::int32_t>(rej.get(Rej::reason)));
  put_private_data(event.content.param.conn, rej.get(Rej::private_data));
  report(id, event);
}

namespace {

/// The event of a SIDR_REP and its status (cma_sidr_rep_handler). If the peer refuses, the status
/// is the message's and not an errno. rdma_init_qp_attr() gives an identifier a Q_Key; a SIDR_REP
/// with another one is an error.
std::pair<EventType, std::int32_t> meaning_of(util::View<spec::cm_sidr_rep> rep,
                                              const Identifier& id) {
  const auto status = rep.get(spec::cm_sidr_rep::status);
  if (status != 0) return {EventType::kUnreachable, static_cast<std::int32_t>(status)};
  const auto qkey = rep.get(spec::cm_sidr_rep::qkey);
  const bool fits = qkey != 0 && (id.qkey == 0 || id.qkey == qkey);
  return fits ? std::pair(EventType::kEstablished, 0) : std::pair(EventType::kAddrError, -EINVAL);
}

}  // namespace

void Manager::hear_sidr_reply(const Received& message) {
  using Rep = spec::cm_sidr_rep;
  const auto rep = body_of<Rep>(message.mad);
  auto* const found = identifiers_.find_connection(rep.get(Rep::request_id));
  if (found == nullptr) return;
  auto& id = *found;
  if (id.state != State::kReqSent || !is_datagram(id) || id.peer != message.from) return;
  Transmitter::settle(id);
  const auto [type, status] = meaning_of(rep, id);
  id.state = type == EventType::kEstablished ? State::kEstablished : State::kOver;
  auto event = event_of(id, type, status);
  auto& param = event.content.param.ud;
  put_private_data(param, rep.get(Rep::private_data));
  if (type == EventType::kEstablished) {
    read_sidr_rep(message.mad, id, param);
  }
  report(id, event);
}

}  // namespace softhca::rdma_cm
