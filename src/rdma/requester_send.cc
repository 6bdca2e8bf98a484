// Packets of connected QPs: messages, READ requests and atomic requests.

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "rdma/message_opcodes.h"
#include "rdma/requester_inl.h"

namespace softhca::rdma {
namespace {

using wire::Opcode;

using MaskedView = util::MutableView<wire::MaskedAtomicLayout>;

Opcode atomic_opcode(wire::Service service, SendOpcode request) {
  switch (request) {
    case SendOpcode::kMaskedCompareSwap:
    case SendOpcode::kMaskedFetchAdd:
      return wire::masked_atomic(service, request == SendOpcode::kMaskedFetchAdd);
    case SendOpcode::kFetchAdd:
      return opcode_of(service, Opcode::RC_FETCH_ADD);
    default:
      return opcode_of(service, Opcode::RC_CMP_SWAP);
  }
}

constexpr bool has_reth(SendOpcode opcode) {
  return opcode == SendOpcode::kRdmaWrite || opcode == SendOpcode::kRdmaWriteWithImmediate;
}

}  // namespace

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
bool Requester::execute_local(SendEntry& e) {
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

/// Sets every extended header that a message may have; its opcode selects those that are sent.
[[gnu::always_inline]] inline void Requester::fill(wire::ExtHeaders& ext, const SendEntry& e) {
  const auto& request = e.request;
  ext.reth = {request.remote_address, wire::RKey(request.rkey.value()), e.length};
  ext.immdt.data = request.immediate;
  ext.ieth.rkey = wire::RKey(request.immediate);
  ext.xrceth.xrc_srq = request.remote_srqn;
}

bool Requester::add_payload(SendEntry& e, std::uint64_t offset, std::size_t length,
                            wire::Frame& frame) {
  const auto fault = memory_.add_payload(e, offset, length, frame);
  if (engine_.moved(qp_, fault, true)) return true;
  hold_or_refuse(e, fault, offset);
  return false;
}

/// The BTH of a request of this QP, without the solicited event and AckReq bits.
[[gnu::always_inline]] inline void Requester::fill(wire::Bth& bth, std::uint64_t psn) const {
  const auto& attributes = qp_.attributes();
  bth.mig_req = true;  // the only path, so the connection is in Migrated (IBTA 17.2.8.1)
  bth.pkey = qp_.pkey();
  bth.dest_qp = attributes.remote_qpn;
  bth.psn = wire::Psn(static_cast<std::uint32_t>(psn));
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
  const auto& request = e.request;
  const auto* header = engine_.path_header(qp_);
  if (header == nullptr) {
    // Without a source address the packet is lost, and the retries end in an error.
    if (!check_payload(e)) return;
    return after_only(e);
  }
  const auto& service = qp_.service();
  auto& frame = engine_.new_frame();
  if (request.opcode != only_opcode_) {
    only_opcode_ = request.opcode;
    only_form_ =
        wire::IbHeader::form(opcode_of(service.packets, rc_opcodes(request.opcode).at(true, true)));
  }
  auto& [bth, ext] = header->begin(only_form_, e.length, frame);
  fill(bth, e.first_psn);
  bth.solicited_event = request.solicited;
  bth.ack_req = service.reliable;
  fill(ext, e);
  if (dynamic) dc_->fill(ext.dceth, window());
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
  auto used = service.datagram && pause_.over() ? send_short_datagrams(quota) : 0;
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
      if (engine_.keys.strained()) break;
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
    if (engine_.keys.strained()) break;
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
  const auto& request = e.request;
  const bool first = window().cursor_packet() == 0;
  if (first && !check_payload(e)) return true;
  const auto psn = e.first_psn + window().cursor_packet();
  // Without a source address the packets are lost, and the retries end in an error.
  if (const auto* header = engine_.path_header(qp_); header != nullptr) {
    const auto& service = qp_.service();
    const auto mtu = qp_.attributes().path_mtu;
    const auto offset = std::uint64_t{window().cursor_packet()} * mtu;
    if (offset >= e.length) {
      // Memory beyond the message is not part of it.
      e.refuse(WorkStatus::kLocalQpOperation, Reason::kBeyondMessage);
      return true;
    }
    const auto length = std::min<std::uint64_t>(std::uint64_t{mtu} * count, e.length - offset);
    const bool last = window().cursor_packet() + count == e.packets;
    // Request an acknowledgement at the end of a message, and often enough in between that the
    // window does not run empty and a loss is noticed early.
    const bool ack_req = service.reliable &&
                         (last || fills_window ||
                          (e.first_packet + window().cursor_packet() + count) % kAckInterval == 0);
    const auto opcode = opcode_of(service.packets, rc_opcodes(request.opcode).at(first, last));

    auto& frame = engine_.new_frame();
    auto& [bth, ext] = header->begin(opcode, count == 1 ? length : mtu, frame);
    fill(bth, psn);
    bth.solicited_event = last && request.solicited;
    bth.ack_req = ack_req && count == 1;
    fill(ext, e);
    if (dc_ != nullptr) dc_->fill(ext.dceth, window());
    if (count == 1) {
      if (!add_payload(e, offset, length, frame)) return true;
    } else {
      if (!memory_.refer(e, offset, length, frame)) return false;
      const auto more = first && has_reth(request.opcode) ? wire::RethLayout::kSize : 0;
      frame.set_train({static_cast<std::uint16_t>(count), static_cast<std::uint16_t>(mtu),
                       static_cast<std::uint8_t>(more), ack_req});
    }
    e.last_frame = engine_.transmit(frame);
  }
  after_packets(e, psn + count, count);
  return true;
}

void Requester::send_read_request(SendEntry& e) {
  // A READ that lost responses resumes at the first missing one.
  const auto done = window().progress(e);
  const auto offset = done * qp_.attributes().path_mtu;
  if (memory_.find_target(e) == nullptr) {
    const auto fault = memory_.check_target(e);
    if (fault != Reason::kNone) return hold_or_refuse(e, fault, offset);
  }

  if (const auto* header = engine_.path_header(qp_); header != nullptr) {
    auto& frame = engine_.new_frame();
    auto& [bth, ext] =
        header->begin(opcode_of(qp_.service().packets, Opcode::RC_RDMA_READ_REQUEST), 0, frame);
    fill(bth, e.first_psn + done);
    bth.ack_req = true;  // the READ response acknowledges it
    ext.reth = {e.request.remote_address + offset, wire::RKey(e.request.rkey.value()),
                static_cast<std::uint32_t>(e.length - offset)};
    ext.xrceth.xrc_srq = e.request.remote_srqn;
    if (dc_ != nullptr) dc_->fill(ext.dceth, window());
    engine_.transmit(frame);
  }
  after_packets(e, e.end_psn());
}

void Requester::send_atomic_request(SendEntry& e) {
  const auto fault = memory_.check_target(e);
  if (fault != Reason::kNone) return hold_or_refuse(e, fault, 0);

  if (const auto* header = engine_.path_header(qp_); header != nullptr) {
    const auto payload = e.is_masked() ? wire::MaskedAtomicLayout::kSize : 0;
    auto& frame = engine_.new_frame();
    auto& [bth, ext] =
        header->begin(atomic_opcode(qp_.service().packets, e.request.opcode), payload, frame);
    if (payload != 0) e.request.masked.emit(MaskedView(frame.own_payload(payload)));
    fill(bth, e.first_psn);
    bth.ack_req = true;  // the response acknowledges it
    ext.atomic = {e.request.remote_address, wire::RKey(e.request.rkey.value()), e.request.swap_add,
                  e.request.compare};
    ext.xrceth.xrc_srq = e.request.remote_srqn;
    if (dc_ != nullptr) dc_->fill(ext.dceth, window());
    engine_.transmit(frame);
  }
  after_packets(e, e.end_psn());
}

}  // namespace softhca::rdma
