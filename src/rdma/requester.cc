#include "rdma/requester.h"

#include <algorithm>

#include "rdma/retransmission_inl.h"

namespace softhca::rdma {

Requester::Requester(Engine& engine, QueuePair& qp)
    : engine_(engine),
      qp_(qp),
      retransmission_(engine, qp),
      memory_(engine.keys, qp),
      packets_(qp),
      responses_(engine, qp) {
  const auto& service = qp.service();
  if (service.datagram) datagrams_ = std::make_unique<Datagrams>(engine, qp);
  if (service.connected && !service.fixed_peer) dc_ = std::make_unique<DcInitiator>(engine, qp);
}

void Requester::reset() {
  stop();
  retransmission_.reset();
}

void Requester::begin_to_send(QpState from) {
  if (from == QpState::kRtr) retransmission_.start(qp_.attributes().sq_psn);
  if (from == QpState::kSqError) {
    // IBTA 10.3.1.7: only what is posted from now on is sent.
    qp_.requests().restart_send();
    queue().restart();
  }
  refresh_retries();
}

void Requester::stop() {
  disconnect();
  retransmission_.stop();
}

void Requester::handle_attributes() {
  memory_.forget();
  retransmission_.handle_attributes();
}

void Requester::disconnect() {
  if (dc_ != nullptr && dc_->is_open()) dc_->close(engine_.path_header(qp_), window());
}

void Requester::inspect(util::InspectNode& out) const {
  out.add("requests_outstanding", window().outstanding());
  out.add("packets_in_flight", window().in_flight(qp_.service().reliable));
  out.add("retries_left", retries().left());
  out.add("rnr_retries_left", retries().rnr_left());
  out.add("waits_for_rnr_timer", pause().for_timer());
  out.add("waits_for_page", pause().for_page());
}

// Sending ----------------------------------------------------------------------------------------

inline bool Requester::may_start(const SendEntry& e) {
  if (e.end_psn() - window().unacked() > kPsnWindow) return false;
  if (e.request.fence && window().reads_in_flight() != 0) return false;  // IBTA 10.8.3.3
  if (e.wants_data() && window().reads_in_flight() >= qp_.attributes().max_rd_atomic) return false;
  return dc_ == nullptr || reaches(e);
}

/// DC: true if the request can be sent now. If its target differs from the current one, it waits
/// until all requests to the current target are answered.
bool Requester::reaches(const SendEntry& e) {
  if (e.psns == 0) return true;  // not on the wire
  const auto& request = e.request;
  const bool idle = window().all_acknowledged();
  if (dc_->leads_to(request)) {
    if (idle) dc_->open_again(window().sent_end());
    return true;
  }
  if (!idle) return false;
  disconnect();
  dc_->open(request, e.first_psn);
  qp_.connect_to(request.ud);
  refresh_retries();
  return true;
}

/// Adds the payload of a single-packet message. False if that failed and the request was refused.
[[gnu::always_inline]] inline bool Requester::add_only_payload(SendEntry& e, wire::Frame& frame) {
  const auto fault = memory_.add_all(e, frame);
  if (engine_.moved(qp_, fault, true)) return true;
  retransmission_.hold_or_refuse(e, fault, 0);
  return false;
}

bool Requester::add_payload(SendEntry& e, std::uint64_t offset, std::size_t length,
                            wire::Frame& frame) {
  const auto fault = memory_.add_payload(e, offset, length, frame);
  if (engine_.moved(qp_, fault, true)) return true;
  retransmission_.hold_or_refuse(e, fault, offset);
  return false;
}

/// Sends a single-packet message, the common case. `dynamic`: a DC request.
[[gnu::always_inline]] inline void Requester::send_only(SendEntry& e, bool dynamic) {
  const auto* path = engine_.path_header(qp_);
  if (path == nullptr) {
    // Without a source address the packet is lost, and the retries end in an error.
    if (!check_payload(e)) return;
    return retransmission_.pass_only(e);
  }
  auto& frame = engine_.new_frame();
  auto& headers = packets_.begin_only(*path, e, frame);
  if (dynamic) dc_->fill(headers.ext.dceth, window());
  if (!add_only_payload(e, frame)) return;
  e.last_frame = engine_.transmit(frame);
  retransmission_.pass_only(e);
}

/// Checks the whole payload first, so that a message is sent either completely or not at all.
bool Requester::check_payload(SendEntry& e) {
  const auto fault = memory_.check_payload(e);
  if (fault == Reason::kNone) return true;
  retransmission_.hold_or_refuse(e, fault, 0);
  return false;
}

unsigned Requester::send_requests(unsigned quota) {
  const auto& service = qp_.service();
  auto used =
      service.datagram && pause().over() ? datagrams_->send_fast(queue(), memory_, quota) : 0;
  auto acked = window().acked_packets(service.reliable);
  while (used < quota && pause().over() && state_rules(qp_.state()).finishes) {
    if (window().all_sent() && (queue().is_held_back(window().tail()) || !queue().fetch())) break;
    auto& e = window().current();
    if (may_send_only(e, acked)) {
      window().begin();
      ++used;
      if (service.datagram) {
        send_datagram(e);
      } else {
        send_only(e, false);
      }
      if (engine_.keys.work().over_budget()) break;
      continue;
    }
    if (queue().is_held_back(window().cursor())) break;
    if (e.status == WorkStatus::kFlushed) {
      window().begin();
      ++used;
      window().pass(e);
      continue;
    }
    if (e.status != WorkStatus::kSuccess) break;  // complete_done() fails it in its turn
    if (window().cursor_packet() == 0 && !may_start(e)) break;
    const auto number = e.first_packet + window().cursor_packet();
    const auto packets = number > acked ? number - acked : 0;
    if (e.psns != 0 && packets >= kWindowPackets) break;
    window().begin();
    auto count = 1u;
    if (e.psns == 0) {
      if (!queue().execute_local(e)) {
        ++used;
        break;
      }
      acked = window().acked_packets(service.reliable);
    } else if (e.is_read()) {
      send_read_request(e);
    } else if (e.is_atomic()) {
      send_atomic_request(e);
    } else if (service.datagram) {
      send_datagram(e);
    } else if (e.packets == 1) {
      send_only(e, dc_ != nullptr);
    } else {
      count = send_message(e, quota - used, kWindowPackets - packets);
    }
    used += count;
    if (engine_.keys.work().over_budget()) break;
  }
  if (queue().may_complete()) queue().complete_done();
  return used;
}

/// Sends the next packets of a message: at most `packets_max`, and at most `room` before the
/// requester must wait for a response. Returns their number.
unsigned Requester::send_message(SendEntry& e, unsigned packets_max, std::uint64_t room) {
  auto count =
      window().cursor_packet() + 2 >= e.packets
          ? 1u
          : train_length(e, static_cast<unsigned>(std::min<std::uint64_t>(packets_max, room)));
  for (; count > 1; count = count > kScatteredTrain ? kScatteredTrain : 1) {
    if (send_message_packets(e, count, count == room)) return count;
  }
  (void)send_message_packets(e, 1, room == 1);
  return 1;
}

/// Number of packets, from the next one on, that can travel as a train: First and Middles, up to
/// one that requests an acknowledgement.
unsigned Requester::train_length(const SendEntry& e, unsigned packets_max) const {
  const auto length = std::min(packets_max, engine_.train_max());
  if (length <= 1 || e.request.is_inline) return 1;
  // Indirect keys are charged packet by packet.
  const auto is_charged = [&](const Sge& sge) { return engine_.keys.is_charged(sge.lkey); };
  if (engine_.keys.has_charged() && std::ranges::any_of(e.request.sges, is_charged)) return 1;
  const auto number = e.first_packet + window().cursor_packet();
  const auto to_ack = kAckInterval - number % kAckInterval;
  return std::min(
      {length, e.packets - 1 - window().cursor_packet(), static_cast<unsigned>(to_ack)});
}

/// `fills_window`: the packet after these must wait for a response. False, with nothing sent, if
/// they cannot be sent as a train.
bool Requester::send_message_packets(SendEntry& e, unsigned count, bool fills_window) {
  const auto packet = window().cursor_packet();
  if (packet == 0 && !check_payload(e)) return true;
  // Without a source address the packets are lost, and the retries end in an error.
  if (const auto* path = engine_.path_header(qp_); path != nullptr) {
    const auto mtu = qp_.attributes().path_mtu;
    const auto offset = std::uint64_t{packet} * mtu;
    if (offset >= e.length) {
      // Memory beyond the message is not part of it.
      e.refuse(WorkStatus::kLocalQpOperation, Reason::kBeyondMessage);
      return true;
    }
    const auto length = std::min<std::uint64_t>(std::uint64_t{mtu} * count, e.length - offset);
    const bool last = packet + count == e.packets;
    // Request an acknowledgement at the end of a message, and often enough in between that the
    // window does not run empty and a loss is noticed early.
    const bool ack_req =
        qp_.service().reliable &&
        (last || fills_window || (e.first_packet + packet + count) % kAckInterval == 0);
    const PacketWriter::Part part{packet, count, length, last, ack_req};
    auto& frame = engine_.new_frame();
    auto& headers = packets_.begin_part(*path, e, part, frame);
    if (dc_ != nullptr) dc_->fill(headers.ext.dceth, window());
    if (count == 1) {
      if (!add_payload(e, offset, length, frame)) return true;
    } else {
      if (!memory_.refer(e, offset, length, frame)) return false;
      packets_.set_train(e, part, frame);
    }
    e.last_frame = engine_.transmit(frame);
  }
  retransmission_.pass_packets(e, e.first_psn + packet + count, count);
  return true;
}

void Requester::send_read_request(SendEntry& e) {
  // A READ that lost responses resumes at the first missing one.
  const auto done = window().progress(e);
  if (memory_.find_target(e) == nullptr) {
    const auto fault = memory_.check_target(e);
    if (fault != Reason::kNone)
      return retransmission_.hold_or_refuse(e, fault, done * qp_.attributes().path_mtu);
  }
  if (const auto* path = engine_.path_header(qp_); path != nullptr) {
    auto& frame = engine_.new_frame();
    auto& headers = packets_.begin_read(*path, e, done, frame);
    if (dc_ != nullptr) dc_->fill(headers.ext.dceth, window());
    engine_.transmit(frame);
  }
  retransmission_.pass_packets(e, e.end_psn());
}

void Requester::send_atomic_request(SendEntry& e) {
  const auto fault = memory_.check_target(e);
  if (fault != Reason::kNone) return retransmission_.hold_or_refuse(e, fault, 0);
  if (const auto* path = engine_.path_header(qp_); path != nullptr) {
    auto& frame = engine_.new_frame();
    auto& headers = packets_.begin_atomic(*path, e, frame);
    if (dc_ != nullptr) dc_->fill(headers.ext.dceth, window());
    engine_.transmit(frame);
  }
  retransmission_.pass_packets(e, e.end_psn());
}

void Requester::send_datagram(SendEntry& e) {
  const auto& to = e.request.ud;
  if (!datagrams_->leads_to(to, engine_.addresses.generation())) {
    const auto missing = datagrams_->choose(to);
    if (missing != Reason::kNone) return e.refuse(WorkStatus::kLocalQpOperation, missing);
  }
  const auto fault = datagrams_->send(e, memory_);
  if (fault != Reason::kNone) return retransmission_.hold_or_refuse(e, fault, 0);
  window().pass_datagram(e);
}

}  // namespace softhca::rdma
