#include "rdma/requester.h"

#include <algorithm>
#include <utility>

#include "rdma/requester_inl.h"

namespace softhca::rdma {
namespace {

using namespace std::chrono_literals;

/// Interval after which a requester reports a fault again that the device had no room for.
constexpr util::Duration kAskAgain = 1ms;

}  // namespace

Requester::Requester(Engine& engine, QueuePair& qp)
    : engine_(engine), qp_(qp), queue_(engine, qp), memory_(engine.keys, qp), packets_(qp) {
  const auto& service = qp.service();
  if (service.datagram) datagrams_ = std::make_unique<Datagrams>(engine, qp);
  if (service.connected && !service.fixed_peer) dc_ = std::make_unique<DcInitiator>(engine, qp);
}

void Requester::reset() {
  disconnect();
  stop();
  queue_.reset();
  retries_.forget_implied();
}

void Requester::start(std::uint32_t psn) {
  window().start(psn & wire::Psn::kMask);
  refresh_retries();
}

void Requester::handle_attributes() {
  memory_.forget();
  retries_.set_timeout(qp_.attributes(), engine_.ack_timeout_min);
}

void Requester::stop() {
  queue_.stop();
  engine_.timers.remove(qp_);
  close_fault();
  pause_.end();
}

void Requester::disconnect() {
  if (dc_ != nullptr && dc_->is_open()) dc_->close(engine_.path_header(qp_), window());
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

/// False if there is more to do in the QP's next turn.
[[gnu::noinline]] bool Requester::execute_local(SendEntry& e) {
  if (!e.executed && e.request.opcode == SendOpcode::kLocal) {
    const bool again = std::exchange(e.in_hand, true);
    const auto [status, reason, unfinished] = qp_.queues().execute_local(e.request, again);
    if (unfinished) {
      engine_.mark_ready(qp_);
      return false;
    }
    if (status != WorkStatus::kSuccess) {
      e.refuse(status, reason);
      return true;
    }
  }
  e.executed = true;
  // It may revoke memory that earlier frames refer to, including frames of other QPs.
  e.last_frame = engine_.last_frame;
  window().pass(e);
  queue_.complete_done();
  return true;
}

bool Requester::add_payload(SendEntry& e, std::uint64_t offset, std::size_t length,
                            wire::Frame& frame) {
  const auto fault = memory_.add_payload(e, offset, length, frame);
  if (engine_.moved(qp_, fault, true)) return true;
  hold_or_refuse(e, fault, offset);
  return false;
}

[[gnu::always_inline]] inline void Requester::after_packets(const SendEntry& e,
                                                            std::uint64_t psn_after,
                                                            unsigned count) {
  const auto again = window().pass_packets(e, psn_after, count);
  if (again != 0) qp_.counters().retransmitted_packets += again;
  if (qp_.service().reliable) {
    arm_ack_timer();
  } else {
    window().acknowledge(psn_after);  // IBTA 9.8.2: there are no acknowledgements
  }
}

/// after_packets() for a single-packet message.
[[gnu::always_inline]] inline void Requester::after_only(const SendEntry& e) {
  if (window().pass_only(e)) ++qp_.counters().retransmitted_packets;
  if (qp_.service().reliable) {
    arm_ack_timer();
  } else {
    window().acknowledge(e.end_psn());
  }
}

/// Sends a single-packet message, the common case. `dynamic`: a DC request.
[[gnu::always_inline]] inline void Requester::send_only(SendEntry& e, bool dynamic) {
  const auto* path = engine_.path_header(qp_);
  if (path == nullptr) {
    // Without a source address the packet is lost, and the retries end in an error.
    if (!check_payload(e)) return;
    return after_only(e);
  }
  auto& frame = engine_.new_frame();
  auto& headers = packets_.begin_only(*path, e, frame);
  if (dynamic) dc_->fill(headers.ext.dceth, window());
  if (!add_only_payload(e, frame)) return;
  e.last_frame = engine_.transmit(frame);
  after_only(e);
}

/// Checks the whole payload first, so that a message is sent either completely or not at all.
bool Requester::check_payload(SendEntry& e) {
  const auto fault = memory_.check_payload(e);
  if (fault == Reason::kNone) return true;
  hold_or_refuse(e, fault, 0);
  return false;
}

unsigned Requester::send_requests(unsigned quota) {
  const auto& service = qp_.service();
  auto used =
      service.datagram && pause_.over() ? datagrams_->send_short(queue_, memory_, quota) : 0;
  auto acked = window().acked_packets(service.reliable);
  while (used < quota && pause_.over() && state_rules(qp_.state()).finishes) {
    if (window().all_sent() && (queue_.is_held_back(window().tail()) || !queue_.fetch())) break;
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
    if (queue_.is_held_back(window().cursor())) break;
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
      if (!execute_local(e)) {
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
  if (queue_.may_complete()) queue_.complete_done();
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
  after_packets(e, e.first_psn + packet + count, count);
  return true;
}

void Requester::send_read_request(SendEntry& e) {
  // A READ that lost responses resumes at the first missing one.
  const auto done = window().progress(e);
  if (memory_.find_target(e) == nullptr) {
    const auto fault = memory_.check_target(e);
    if (fault != Reason::kNone) return hold_or_refuse(e, fault, done * qp_.attributes().path_mtu);
  }
  if (const auto* path = engine_.path_header(qp_); path != nullptr) {
    auto& frame = engine_.new_frame();
    auto& headers = packets_.begin_read(*path, e, done, frame);
    if (dc_ != nullptr) dc_->fill(headers.ext.dceth, window());
    engine_.transmit(frame);
  }
  after_packets(e, e.end_psn());
}

void Requester::send_atomic_request(SendEntry& e) {
  const auto fault = memory_.check_target(e);
  if (fault != Reason::kNone) return hold_or_refuse(e, fault, 0);
  if (const auto* path = engine_.path_header(qp_); path != nullptr) {
    auto& frame = engine_.new_frame();
    auto& headers = packets_.begin_atomic(*path, e, frame);
    if (dc_ != nullptr) dc_->fill(headers.ext.dceth, window());
    engine_.transmit(frame);
  }
  after_packets(e, e.end_psn());
}

void Requester::send_datagram(SendEntry& e) {
  const auto& to = e.request.ud;
  if (!datagrams_->leads_to(to, engine_.addresses.generation())) {
    const auto missing = datagrams_->choose(to);
    if (missing != Reason::kNone) return e.refuse(WorkStatus::kLocalQpOperation, missing);
  }
  const auto fault = datagrams_->send(e, memory_);
  if (fault != Reason::kNone) return hold_or_refuse(e, fault, 0);
  window().pass_datagram(e);
}

// Page faults: nothing is sent until the page is present -----------------------------------------

/// True if request `index` now waits for its page. False if there is nothing to wait for and
/// `fault` ends the request. `committed`: bytes of the message already done.
[[gnu::noinline]] bool Requester::wait_for_page(std::uint64_t index, Reason fault,
                                                std::uint64_t committed) {
  if (fault != Reason::kPageAbsent) return false;
  if (pause_.for_page()) return true;
  const auto& e = window().entry(index);
  switch (qp_.queues().open_fault(
      {.kind = e.wants_data() ? PageFaultKind::kReadOrAtomic : PageFaultKind::kSend,
       .cookie = e.request.cookie,
       .committed = static_cast<std::uint32_t>(committed)})) {
    case FaultAnswer::kNobody:
      return false;
    case FaultAnswer::kBusy:
      if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, engine_.now + kAskAgain);
      pause_.begin_timer();
      break;
    case FaultAnswer::kOpened:
      pause_.begin_page(index);
      break;
  }
  // The last packets may not have requested an acknowledgement, so silence means nothing.
  engine_.timers.stop(qp_, Timer::kAck);
  return true;
}

/// Faults of the request that is being sent.
[[gnu::noinline]] void Requester::hold_or_refuse(SendEntry& e, Reason fault,
                                                 std::uint64_t committed) {
  if (!wait_for_page(window().cursor(), fault, committed)) {
    e.refuse(fault == Reason::kBeyondMessage ? WorkStatus::kLocalQpOperation
                                             : WorkStatus::kLocalProtection,
             fault);
  }
}

/// Faults in placing the data of the oldest unanswered request: they are requested again.
void Requester::hold_or_fail(Reason fault, std::uint64_t committed) {
  if (!wait_for_page(window().unanswered(), fault, committed)) {
    return queue_.fail_unanswered(WorkStatus::kLocalProtection, fault);
  }
  rewind();
}

void Requester::close_fault() {
  if (!pause_.for_page()) return;
  pause_.end_page();
  qp_.queues().close_fault();
}

bool Requester::resume(bool failed) {
  if (!pause_.for_page()) return false;
  close_fault();
  // The request may have been answered meanwhile.
  const auto faulting = pause_.fault_entry();
  if (failed && faulting >= window().unanswered() && faulting < window().tail()) {
    window().entry(faulting).refuse(WorkStatus::kLocalProtection, Reason::kPageNotBrought);
  }
  // In the next turn, when engine_.now is current.
  if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, engine_.now);
  pause_.begin_timer();
  return true;
}

}  // namespace softhca::rdma
