// Responses of a reliable responder: acknowledgements, NAKs, READ and atomic responses.

#include <algorithm>

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using wire::Opcode;

void Responder::push_answer(const Answer& answer) {
  answers_.push(answer);
  // IBTA 9.7.5.1: a response acknowledges all requests before it. A repeated one has an earlier PSN
  // than the acknowledgement that is due, and may answer a late copy of its request.
  if (!answer.repeated && reply_type_ == wire::AethType::ACK) reply_due_ = false;
  engine_.mark_ready(qp_);
}

/// Charges a response that is sent while its request arrives: it is outside the QP's turn, which
/// would count it.
void Responder::charge_answer(std::uint32_t bytes) {
  engine_.keys.add_work(Engine::kStepWork + bytes / Engine::kBytesPerUnit);
}

/// Sends the pending response immediately if it is the only one and has one packet.
void Responder::answer_at_once() {
  if (answers_.size() != 1 || answers_.front().left != 1 || waits_for_page()) return;
  const auto bytes = answers_.front().length;
  if (send_answer(answers_.front(), 1) == 0) return;
  answers_.pop_front();
  charge_answer(bytes);
}

void Responder::reply(wire::AethType type, std::uint8_t value) {
  reply_due_ = true;
  reply_type_ = type;
  reply_value_ = value;
  engine_.mark_ready(qp_);
}

/// Acknowledges all requests up to here. A pending NAK implies that already.
void Responder::acknowledge() {
  if (reply_due_ && reply_type_ != wire::AethType::ACK) return;
  reply(wire::AethType::ACK, wire::Aeth::kCreditsInvalid);
}

/// The same at the end of a message: immediately, if the fabric has delivered everything, so that
/// no further request can join.
void Responder::acknowledge_end() {
  if (engine_.port.delivers_last()) {
    acknowledge_now();
  } else if (!reply_due_) {
    acknowledge();
  }
}

/// The same, immediately.
void Responder::acknowledge_now() {
  if (!answers_.empty() || (reply_due_ && reply_type_ != wire::AethType::ACK)) {
    return acknowledge();
  }
  reply_type_ = wire::AethType::ACK;
  reply_value_ = wire::Aeth::kCreditsInvalid;
  send_reply();
  charge_answer(0);
}

unsigned Responder::send_answers(unsigned quota) {
  if (fault_ == Fault::kAnswers) return 0;
  unsigned used = 0;
  while (used < quota && !answers_.empty()) {
    auto& first = answers_.front();
    const auto sent = send_answer(first, quota - used);
    used += std::max(1u, sent);
    if (sent == 0) {
      hold_answers();
      if (waits_for_page()) return used - 1;
    } else if (first.left == 0) {
      answers_.pop_front();
    }
    if (engine_.keys.strained()) return used;
  }
  if (used != 0) answers_.give_back();
  if (answers_.empty() && reply_due_ && used < quota) {
    ++used;
    send_reply();
    if (fatal_) engine_.to_error(qp_);
  }
  return used;
}

void Responder::send_reply() {
  reply_due_ = false;
  const auto* header = engine_.path_header(qp_);
  if (header == nullptr) return;
  auto& frame = engine_.new_frame();
  auto& [bth, ext] =
      header->begin(opcode_of(qp_.service().packets, Opcode::RC_ACKNOWLEDGE), 0, frame);
  // The PSN of a NAK is that of the packet it requests or refuses; an acknowledgement has that of
  // the last request done.
  fill(bth, reply_type_ == wire::AethType::ACK ? expected_.previous() : expected_);
  ext.aeth = {reply_type_, reply_value_, msn_};
  engine_.transmit(frame);
}

/// The BTH of a response, without the AckReq and solicited event bits.
void Responder::fill(wire::Bth& bth, wire::Psn psn) const {
  const auto& attributes = qp_.attributes();
  bth.mig_req = true;  // the only path, so the connection is in Migrated (IBTA 17.2.8.1)
  bth.pkey = qp_.pkey();
  bth.dest_qp = attributes.remote_qpn;
  bth.psn = psn;
}

/// Number of packets, from the next one on, that can travel as a train: First and Middles.
unsigned Responder::train_length(const Answer& answer, unsigned packets_max) const {
  const auto length = std::min(packets_max, engine_.train_max());
  if (length <= 1 || answer.left <= 2) return 1;
  if (engine_.keys.has_charged() && engine_.keys.is_charged(answer.rkey)) return 1;
  return std::min(length, answer.left - 1);
}

/// Sends the next packets of `answer`, at most `packets_max`. Returns their number, or 0 if the
/// memory can no longer be read.
unsigned Responder::send_answer(Answer& answer, unsigned packets_max) {
  auto count = train_length(answer, packets_max);
  for (; count > 1; count = count > Requester::kScatteredTrain ? Requester::kScatteredTrain : 1) {
    if (send_answer_packets(answer, count)) return count;
  }
  return send_answer_packets(answer, 1) ? 1 : 0;
}

/// False, with nothing sent, if they cannot be sent.
bool Responder::send_answer_packets(Answer& answer, unsigned count) {
  const auto mtu = qp_.attributes().path_mtu;
  const auto size = std::min(mtu * count, answer.length);
  const bool first = !answer.begun;
  const bool last = answer.left == count;
  MemoryKey* key = nullptr;
  if (size != 0) {
    const auto found =
        engine_.keys.check(answer.rkey, user(answer.pd), answer.address, size, kRemoteRead);
    answer_fault_ = found.reason;
    if (!found) return false;
    key = found.key;
  }
  if (const auto* header = engine_.path_header(qp_); header != nullptr) {
    const auto opcode = answer.atomic   ? Opcode::RC_ATOMIC_ACKNOWLEDGE
                        : first && last ? Opcode::RC_RDMA_READ_RESPONSE_ONLY
                        : first         ? Opcode::RC_RDMA_READ_RESPONSE_FIRST
                        : last          ? Opcode::RC_RDMA_READ_RESPONSE_LAST
                                        : Opcode::RC_RDMA_READ_RESPONSE_MIDDLE;
    auto& frame = engine_.new_frame();
    auto& [bth, ext] =
        header->begin(opcode_of(qp_.service().packets, opcode), count == 1 ? size : mtu, frame);
    fill(bth, answer.next);
    ext.aeth = wire::Aeth::ack(answer.msn);
    ext.atomic_ack.original = answer.original;
    if (count > 1) {
      if (!refer(engine_.keys, *key, answer.address, size, frame)) return false;
      const auto more = first ? wire::AethLayout::kSize : 0;
      frame.set_train({static_cast<std::uint16_t>(count), static_cast<std::uint16_t>(mtu),
                       static_cast<std::uint8_t>(more), false});
    } else if (size != 0) {
      answer_fault_ = gather(engine_.keys, *key, answer.address, size, frame);
      if (!engine_.moved(qp_, answer_fault_, false)) return false;
    }
    engine_.transmit(frame);
  }
  answer.begun = true;
  answer.address += size;
  answer.length -= size;
  answer.next += count;
  answer.left -= count;
  return true;
}

}  // namespace softhca::rdma
