// The send requests of a QP, and which of their packets are sent and acknowledged. Internal.
//
// Send requests wait in a ring with three positions:
//
//      head()                cursor()               tail()
//   ...  | sent, not complete  |  to be (re)sent      |  not fetched yet
//
// The cursor also has a packet number within its request. A retransmission moves the cursor back to
// the oldest unacknowledged packet (go-back-N). PSNs are counted in 64 bits here, so that they
// never wrap; the wire carries the low 24.
//
// The head may already be acknowledged: its completion waits until the fabric has read the frames
// that refer to its payload. So responses, NAKs and retries concern unanswered(), never the head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma/send_ring.h"

namespace softhca::rdma {

class SendWindow : public SendRing {
 public:
  explicit SendWindow(Engine& engine) : SendRing(engine) {}

  /// Removes all requests, and counts from 0 again.
  void reset();
  /// The first request gets this PSN.
  void start(std::uint32_t psn) { next_psn_ = unacked_ = sent_end_ = psn; }

  // Positions.
  std::uint64_t cursor() const { return cursor_; }  ///< request to send next
  /// Packet of the cursor's request to send next.
  std::uint32_t cursor_packet() const { return cursor_packet_; }
  /// The cursor's request. @pre not all_sent()
  SendEntry& current() { return entry(cursor_); }
  bool all_sent() const { return cursor_ == tail(); }
  /// Requests before this one have sent something.
  std::uint64_t begun() const { return begun_; }
  std::uint64_t outstanding() const { return begun_ - head(); }
  /// True if all requests that were begun are complete.
  bool idle() const { return head() == begun_; }
  /// READs and atomics between head and cursor.
  std::uint32_t reads_in_flight() const { return reads_in_flight_; }

  // PSNs.
  std::uint64_t next_psn() const { return next_psn_; }  ///< of the next request to fetch
  std::uint64_t unacked() const { return unacked_; }    ///< oldest unacknowledged PSN
  std::uint64_t sent_end() const { return sent_end_; }  ///< PSNs before this one have been sent
  bool all_acknowledged() const { return unacked_ == sent_end_; }
  /// Acknowledged PSNs of an entry. Only unanswered(), among the entries that are not done, can
  /// have any.
  std::uint64_t progress(const SendEntry& e) const {
    return unacked_ > e.first_psn ? unacked_ - e.first_psn : 0;
  }
  /// The number of the oldest unacknowledged request packet. `reliable`: the peer acknowledges.
  std::uint64_t acked_packets(bool reliable) const {
    // Without acknowledgements each PSN is one packet.
    if (!reliable) return next_packet_ - (next_psn_ - unacked_);
    const auto oldest = unanswered();
    if (oldest == tail()) return next_packet_;
    const auto& e = entry(oldest);
    return e.wants_data() ? e.first_packet : e.first_packet + progress(e);
  }
  /// Packets sent and not acknowledged.
  std::uint64_t in_flight(bool reliable) const;

  /// Everything that the request asked for has happened; frames may still refer to its memory.
  bool done(const SendEntry& e) const {
    if (e.status != WorkStatus::kSuccess) return false;
    return e.psns == 0 ? e.executed : unacked_ >= e.end_psn();
  }
  /// The oldest request without a response; tail() if there is none. Requests that are flushed, or
  /// that the device executed itself, wait for no response.
  std::uint64_t unanswered() const {
    auto i = std::max(answered_, head());
    while (i != tail() && (done(entry(i)) || entry(i).status == WorkStatus::kFlushed)) ++i;
    return i;
  }

  /// Appends the entry that blank() gave, and numbers its packets.
  void append(SendEntry& e) {
    e.first_psn = next_psn_;
    e.first_packet = next_packet_;
    next_psn_ += e.psns;
    next_packet_ += e.packets;
    push();
  }
  /// Counts datagrams that were sent without an entry. @pre empty()
  void count_sent(unsigned datagrams) {
    unacked_ = sent_end_ = next_psn_ += datagrams;
    next_packet_ += datagrams;
    skip(datagrams);
    cursor_ = begun_ = tail();
  }

  /// The cursor's request is about to send something.
  void begin() { begun_ = std::max(begun_, cursor_ + 1); }
  /// All packets of the cursor's request `e` are sent: moves to the next one.
  void pass(const SendEntry& e) {
    if (e.wants_data()) ++reads_in_flight_;
    ++cursor_;
    cursor_packet_ = 0;
  }
  /// The next `count` packets of `e` are sent; the next PSN is `psn_after`. Returns how many of
  /// them are retransmissions.
  std::uint64_t pass_packets(const SendEntry& e, std::uint64_t psn_after, unsigned count) {
    const auto first = psn_after - count;
    const auto again = first < sent_end_ ? std::min<std::uint64_t>(sent_end_ - first, count) : 0;
    sent_end_ = std::max(sent_end_, psn_after);
    cursor_packet_ += count;
    if (cursor_packet_ == e.packets) pass(e);
    return again;
  }
  /// pass_packets() for a single-packet message. True if it is a retransmission.
  bool pass_only(const SendEntry& e) {
    const auto psn_after = e.first_psn + 1;
    const bool again = psn_after <= sent_end_;
    if (!again) sent_end_ = psn_after;
    ++cursor_;
    cursor_packet_ = 0;
    return again;
  }
  /// The same for a datagram, which is sent once and not acknowledged.
  void pass_datagram(const SendEntry& e) {
    sent_end_ = unacked_ = e.end_psn();
    ++cursor_;
    cursor_packet_ = 0;
  }
  /// Makes `psn` the oldest unacknowledged PSN. @pre no request before it waits for data
  void acknowledge(std::uint64_t psn) { unacked_ = psn; }
  /// The same, and remembers unanswered().
  void advance(std::uint64_t psn) {
    unacked_ = psn;
    answered_ = unanswered();
  }
  /// Goes back to the oldest unanswered packet.
  void rewind();
  /// A late acknowledgement may cover requests that were about to be sent again: skips them.
  void skip_done();

  /// Removes the oldest request, which has ended.
  void retire(const SendEntry& e) {
    if (e.wants_data() && head() < cursor_) --reads_in_flight_;
    pop();
  }
  /// The same for a READ that has been sent.
  void retire_read() {
    --reads_in_flight_;
    pop();
  }
  /// Takes all requests off the wire: nothing more is sent for them. Their PSNs that were not sent
  /// are used again.
  void withdraw();
  /// Nothing is left: the next request is neither sent nor begun. @pre empty()
  void settle();

 private:
  std::uint64_t answered_ = 0;  ///< requests before this one are answered
  std::uint64_t cursor_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t next_psn_ = 0;
  std::uint64_t unacked_ = 0;
  std::uint64_t sent_end_ = 0;
  std::uint64_t next_packet_ = 0;  ///< first packet number of the next request to fetch
  std::uint32_t cursor_packet_ = 0;
  std::uint32_t reads_in_flight_ = 0;
};

}  // namespace softhca::rdma
