// The requests that are sent and not answered. They are acknowledged in order, or sent again
// (go-back-N) after a NAK, a timeout or a page fault (IBTA 9.7.5, 9.7.6). Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/retries.h"
#include "rdma/send_pause.h"
#include "rdma/send_queue.h"

namespace softhca::rdma {

class Retransmission {
 public:
  Retransmission(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp), queue_(engine, qp) {}

  SendQueue& queue() { return queue_; }
  const SendQueue& queue() const { return queue_; }
  SendWindow& window() { return queue_.window(); }
  const SendWindow& window() const { return queue_.window(); }
  const Retries& retries() const { return retries_; }
  const SendPause& pause() const { return pause_; }

  // State changes of the QP.
  void reset();
  void start(std::uint32_t psn);
  void stop();
  void handle_attributes();
  /// Restores the full number of retries.
  void refresh_retries() { retries_.refresh(qp_.attributes()); }

  /// The next `count` packets of a request are sent; the next PSN is `psn_after`.
  void pass_packets(const SendEntry& entry, std::uint64_t psn_after, unsigned count = 1);
  /// pass_packets() for a single-packet message.
  void pass_only(const SendEntry& entry);
  /// No effect if the timer is running.
  void arm_ack_timer();
  /// Makes `target` the oldest unacknowledged PSN.
  void advance(std::uint64_t target);
  /// Acknowledges everything before `target`. False if a READ or atomic before it still lacks its
  /// data (an implied NAK), or if the QP failed.
  bool acknowledge(std::uint64_t target);
  /// The request that a response with data, or a NAK, of `psn` concerns. Acknowledges all requests
  /// before it, which makes it the oldest unanswered one. Null if that is not possible, or if the
  /// request has failed already and completes in its turn.
  SendEntry* answered_by(std::uint64_t psn);

  void handle_sequence_nak();
  void handle_rnr_nak(std::uint8_t timer_code);
  void handle_ack_timeout();
  void handle_rnr_timeout();
  /// Sends nothing before `time`: the QP is rate-limited (congestion.h).
  void wait_for_rate(util::Time time);

  // Faults. For an absent page the requester waits, and sends nothing meanwhile. For any other
  // fault the request fails. `committed`: bytes of the message already done.
  /// A fault in the payload of the request that is being sent.
  void hold_or_refuse(SendEntry& entry, Reason fault, std::uint64_t committed);
  /// A fault in storing the data of the oldest unanswered request. After a wait they are requested
  /// again.
  void hold_or_fail(Reason fault, std::uint64_t committed);
  /// Transport::resume().
  bool resume(bool failed);

 private:
  void implied_nak();
  bool use_retry();
  void rewind();
  bool wait_for_page(std::uint64_t index, Reason fault, std::uint64_t committed);
  void close_fault();

  Engine& engine_;
  QueuePair& qp_;
  SendQueue queue_;
  Retries retries_;
  SendPause pause_;
};

}  // namespace softhca::rdma
