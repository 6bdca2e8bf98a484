#include "rdma/answers.h"

#include <algorithm>

#include "rdma/answers_inl.h"
#include "rdma/requester.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using wire::Opcode;

void Answers::push(const Answer& answer) {
  ring_.push(answer);
  // IBTA 9.7.5.1: a response acknowledges all requests before it. A repeated one has an earlier PSN
  // than the acknowledgement that is due, and may answer a late copy of its request.
  if (!answer.repeated && type_ == wire::AethType::ACK) due_ = false;
  engine_.mark_ready(qp_);
}

void Answers::send_only() {
  if (ring_.size() != 1 || ring_.front().left != 1) return;
  const auto bytes = ring_.front().length;
  if (send_front(1) == 0) return;
  charge(bytes);
}

void Answers::reply(wire::AethType type, std::uint8_t value) {
  due_ = true;
  type_ = type;
  value_ = value;
  engine_.mark_ready(qp_);
}

void Answers::acknowledge() {
  if (due_ && type_ != wire::AethType::ACK) return;
  reply(wire::AethType::ACK, wire::Aeth::kCreditsInvalid);
}

void Answers::acknowledge_end(const ResponderNumbers& numbers) {
  if (engine_.port.delivers_last()) {
    acknowledge_now(numbers);
  } else if (!due_) {
    acknowledge();
  }
}

/// The same, immediately.
void Answers::acknowledge_now(const ResponderNumbers& numbers) {
  if (!ring_.empty() || (due_ && type_ != wire::AethType::ACK)) {
    return acknowledge();
  }
  type_ = wire::AethType::ACK;
  value_ = wire::Aeth::kCreditsInvalid;
  send_reply(numbers);
  charge(0);
}

void Answers::send_reply(const ResponderNumbers& numbers) {
  due_ = false;
  const auto* header = engine_.path_header(qp_);
  if (header == nullptr) return;
  auto& frame = engine_.new_frame();
  auto& [bth, ext] =
      header->begin(opcode_of(qp_.service().packets, Opcode::RC_ACKNOWLEDGE), 0, frame);
  // The PSN of a NAK is that of the packet it requests or refuses; an acknowledgement has that of
  // the last request done.
  fill(bth, is_nak() ? numbers.expected : numbers.expected.previous());
  ext.aeth = {type_, value_, numbers.msn};
  engine_.transmit(frame);
}

/// Number of packets, from the next one on, that can travel as a train: First and Middles.
unsigned Answers::train_length(const Answer& answer, unsigned packets_max) const {
  const auto length = std::min(packets_max, engine_.train_max());
  if (length <= 1 || answer.left <= 2) return 1;
  if (engine_.keys.has_charged() && engine_.keys.is_charged(answer.rkey)) return 1;
  return std::min(length, answer.left - 1);
}

unsigned Answers::send_front(unsigned packets_max) {
  auto& answer = ring_.front();
  auto count = train_length(answer, packets_max);
  while (!send_packets(answer, count)) {
    if (count == 1) return 0;
    count = count > Requester::kScatteredTrain ? Requester::kScatteredTrain : 1;
  }
  if (answer.left == 0) ring_.pop_front();
  return count;
}

/// False, with nothing sent, if they cannot be sent.
bool Answers::send_packets(Answer& answer, unsigned count) {
  const auto mtu = qp_.attributes().path_mtu;
  const auto size = std::min(mtu * count, answer.length);
  const bool first = !answer.begun;
  const bool last = answer.left == count;
  MemoryKey* key = nullptr;
  if (size != 0) {
    const KeyUser user{answer.pd, qp_.qpn(), qp_.attributes().reserved_lkey, true};
    const auto found = engine_.keys.check(answer.rkey, user, answer.address, size, kRemoteRead);
    fault_ = found.reason;
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
      fault_ = gather(engine_.keys, *key, answer.address, size, frame);
      if (!engine_.moved(qp_, fault_, false)) return false;
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

bool Answers::go_back(wire::Psn psn) {
  if (ring_.covers(psn)) return false;
  // An acknowledgement behind them would be an implied NAK.
  if (ring_.drop_from(psn) && !is_nak()) due_ = false;
  return true;
}

}  // namespace softhca::rdma
