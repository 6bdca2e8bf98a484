// The answers of a reliable responder. READ and atomic responses leave in PSN order. Behind them
// waits at most one acknowledgement or NAK, the reply, which covers everything before it, so that
// one acknowledgement covers a batch of requests. It is sent immediately if the fabric has nothing
// more to deliver, as then no further request can join it. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/answer_ring.h"
#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

/// The numbers of a responder's packets.
struct ResponderNumbers {
  wire::Psn expected;  ///< the next PSN of the peer
  wire::Msn msn;       ///< messages done
};

class Answers {
 public:
  Answers(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp), ring_(engine) {}

  /// The responses that wait.
  AnswerRing& ring() { return ring_; }
  const AnswerRing& ring() const { return ring_; }
  /// True if a response or the reply is to be sent.
  bool any() const { return due_ || !ring_.empty(); }
  /// Drops the waiting responses and the reply.
  void clear() {
    ring_.clear();
    due_ = false;
  }

  /// Queues a response.
  void push(const Answer& answer);
  /// Sends the response immediately if no other one waits and it has one packet.
  void send_only();
  /// Sends at most `packets_max` packets of the oldest response. Returns their number, or 0 if the
  /// memory can no longer be read; fault() then has the reason.
  unsigned send_front(unsigned packets_max);
  /// Why the oldest response could not be sent.
  Reason fault() const { return fault_; }
  /// Sends a READ response of one packet, before which nothing waits. @pre ring().empty()
  void send_read(const wire::IbHeader& path, wire::Psn psn, wire::Msn msn,
                 std::span<std::byte> data);
  /// Drops the responses after `psn`: the peer went back to it and will request them again, with
  /// what an acknowledgement behind them covers. False, with no effect, if the response to `psn`
  /// still waits.
  bool go_back(wire::Psn psn);

  bool reply_due() const { return due_; }
  /// True if the last reply was, or is, a NAK.
  bool is_nak() const { return type_ != wire::AethType::ACK; }
  /// Queues a reply.
  void reply(wire::AethType type, std::uint8_t value);
  /// Queues an acknowledgement of all requests up to here. A pending NAK implies that already.
  void acknowledge();
  /// The same at the end of a message: sends it immediately if nothing can join it.
  void acknowledge_end(const ResponderNumbers& numbers);
  /// The packet that a NAK requested is here: the NAK need not be sent any more.
  void withdraw_nak() {
    if (is_nak()) due_ = false;
  }
  void send_reply(const ResponderNumbers& numbers);

 private:
  void acknowledge_now(const ResponderNumbers& numbers);
  void charge(std::uint32_t bytes);
  bool send_packets(Answer& answer, unsigned count);
  unsigned train_length(const Answer& answer, unsigned packets_max) const;
  void fill(wire::Bth& bth, wire::Psn psn) const;

  Engine& engine_;
  QueuePair& qp_;
  AnswerRing ring_;
  bool due_ = false;  ///< the reply is to be sent
  wire::AethType type_ = wire::AethType::ACK;
  std::uint8_t value_ = 0;
  Reason fault_ = Reason::kNone;
};

}  // namespace softhca::rdma
