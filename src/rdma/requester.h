// The requester of a QP: takes send requests from the device, sends them as packets, and completes
// them in order. Internal: devices use queue_pair.h.
//
// Send requests wait in a ring with three positions:
//
//      head_                 cursor_                tail_
//   ...  | sent, not complete  |  to be (re)sent      |  not fetched yet
//
// The cursor also has a packet number within its request. A retransmission moves the cursor back to
// the oldest unacknowledged packet (go-back-N). PSNs are counted in 64 bits here, so that they
// never wrap; the wire carries the low 24.
//
// The head may already be acknowledged: its completion waits until the fabric has read the frames
// that refer to its payload. So responses, NAKs and retries concern unanswered(), never the head.
//
//   requester.cc            fetching, completing, flushing
//   requester_send.cc       packets of RC and UC
//   requester_answers.cc    acknowledgements, read and atomic responses, timers (RC)
//   requester_ud.cc         datagrams
//   requester_dc.cc         the connections of a DC initiator
//   page_faults.cc          page faults
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/seen_key.h"
#include "rdma/spare_rings.h"
#include "rdma/work_queues.h"
#include "rdma/work_request.h"
#include "util/budget.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

class Requester {
 public:
  /// Most request packets in flight, and most requests begun, per QP. Bounds what a fabric must
  /// hold.
  static constexpr std::uint64_t kWindowPackets = 256;
  static constexpr std::uint64_t kEntriesMax = 256;
  /// A ring first grows to this size, and then doubles.
  static constexpr std::uint64_t kEntriesFirst = 8;
  /// A long message requests an acknowledgement every kAckInterval packets, and with its last
  /// packet.
  static constexpr std::uint64_t kAckInterval = 128;
  /// A train of this length fits into a frame even if every page is separate.
  static constexpr unsigned kScatteredTrain = wire::Frame::kSegmentsMax / 2 - 1;
  /// IBTA 9.7.1: at most 2^23 PSNs may be outstanding.
  static constexpr std::uint64_t kPsnWindow = 1u << 23;

  Requester(Engine& engine, QueuePair& qp);
  ~Requester();
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  // State changes of the QP.
  void reset();
  void start(std::uint32_t psn);
  void refresh_retries();
  /// Stops sending; flush() completes the remaining requests.
  void stop();
  /// Releases the ring if it is empty. Called when other QPs may need one.
  void give_back();
  /// DC: ends the connection, if there is one, with a disconnect packet.
  void disconnect();
  /// The same without a packet, as for a device that is reset.
  void forget_connection() {
    if (dc_ != nullptr) dc_->open = false;
  }
  /// From SQE back to RTS: fetched requests are flushed in order.
  void restart();

  /// The send queue may have requests that were not fetched yet.
  void notice_posted() { all_fetched_ = !qp_.options().has_send_queue; }
  /// The attributes have changed: drops cached key checks.
  void handle_attributes();
  /// Sends at most `quota` packets. Returns how much of it was used; if all of it, there may be
  /// more to do.
  unsigned send(unsigned quota) { return has_work() ? send_requests(quota) : 0; }
  /// Completes at most `quota` posted requests as flushed. Returns their number.
  unsigned flush(unsigned quota);
  /// Fast path of handle_answer() for an acknowledgement of everything sent, when all posted
  /// requests were sent and none waits for data. False, with no effect, in any other case.
  bool take_acknowledgement(const wire::TransportHeaders& headers);
  /// The same for a READ response with all the data of the oldest request.
  bool take_read_response(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// A packet from the peer's responder (RC).
  void handle_answer(const wire::IbPacket& packet, const wire::Frame& frame);
  /// Takes the last `count` READ responses of a train, from `packet` on, all of them Middles.
  /// Returns `count`, or 0 if any needs the slow path.
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count);
  void handle_ack_timeout();
  void handle_rnr_timeout();
  /// Transport::resume().
  bool resume(bool failed);

  /// True if all requests that were begun are complete.
  bool idle() const { return head_ == begun_; }
  std::uint32_t next_psn() const;
  std::uint32_t last_acked_psn() const;
  std::uint64_t begun() const { return begun_; }
  std::uint64_t outstanding() const { return begun_ - head_; }
  std::uint64_t in_flight() const;
  std::uint8_t retries_left() const { return retries_left_; }
  std::uint8_t rnr_retries_left() const { return rnr_retries_left_; }
  /// Sends nothing before `time`: the QP is rate-limited (congestion.h).
  void wait_for_rate(util::Time time);
  bool waits_for_rnr() const { return (waits_ & kForTimer) != 0; }
  bool waits_for_page() const { return (waits_ & kForPage) != 0; }
  /// True if the oldest request is done, but the fabric has not read all of its payload.
  bool waits_for_release() const;

  bool drain_reported = false;

 private:
  friend struct LentRings;
  struct Entry {
    SendRequest request;
    std::uint32_t length = 0;   ///< bytes of the message
    std::uint32_t packets = 0;  ///< request packets
    std::uint32_t psns = 0;     ///< 0: not on the wire (NOP, local)
    std::uint64_t first_psn = 0;
    std::uint64_t first_packet = 0;  ///< number of its first request packet, counted over all
                                     ///< requests
    /// Unless kSuccess, the request ends with this status when its turn to complete comes.
    WorkStatus status = WorkStatus::kSuccess;
    Reason reason = Reason::kNone;
    bool executed = false;         ///< not on the wire: has been executed
    bool in_hand = false;          ///< not on the wire: execution has begun
    bool only_packet = false;      ///< a message of one packet to the peer, without fence
    std::uint64_t last_frame = 0;  ///< number of the last frame that refers to its payload
                                   ///< (fabric::Port::transmit)

    /// Prepares the entry for a new request; the vectors keep their memory.
    void clear() {
      request.reset();
      length = packets = psns = 0;
      status = WorkStatus::kSuccess;
      reason = Reason::kNone;
      executed = in_hand = only_packet = false;
      last_frame = 0;
    }
    std::uint64_t end_psn() const { return first_psn + psns; }
    bool is_read() const { return request.opcode == SendOpcode::kRdmaRead; }
    bool is_masked() const {
      return request.opcode == SendOpcode::kMaskedCompareSwap ||
             request.opcode == SendOpcode::kMaskedFetchAdd;
    }
    bool is_atomic() const {
      return request.opcode == SendOpcode::kCompareSwap ||
             request.opcode == SendOpcode::kFetchAdd || is_masked();
    }
    /// The response carries data: an acknowledgement alone does not complete it.
    bool wants_data() const { return is_read() || is_atomic(); }
    /// READ only: the response data, if the device takes them with the completion.
    InlineBytes& completion_data() { return request.inline_data; }
  };

  using Ring = SpareRings<Entry>::Ring;

  // requester.cc
  Entry& entry(std::uint64_t index) { return ring_[index & ring_mask_]; }
  const Entry& entry(std::uint64_t index) const { return ring_[index & ring_mask_]; }
  bool fetch() { return !all_fetched_ && fetch_posted(); }
  bool fetch_posted();
  bool grow();
  bool grow_to(std::size_t size);
  Ring* make_ring(std::size_t size);
  void reserve_share(Ring& ring);
  void give_ring();
  void drop_ring();
  void prepare(Entry& entry);
  void add(Entry& entry);
  /// Appends the entry at the tail.
  void number(Entry& e) {
    e.first_psn = next_psn_;
    e.first_packet = next_packet_;
    next_psn_ += e.psns;
    next_packet_ += e.packets;
    ++tail_;
  }
  bool validate(Entry& entry, std::uint64_t length);
  void complete(const Entry& entry, WorkStatus status, Reason reason);
  void complete_with_data(Entry& entry);
  void count_failed(WorkStatus status, Reason reason);
  void complete_head();
  void complete_done();
  void complete_sent();
  /// Everything that the request asked for has happened; frames may still refer to its memory.
  bool done(const Entry& e) const {
    if (e.status != WorkStatus::kSuccess) return false;
    return e.psns == 0 ? e.executed : unacked_ >= e.end_psn();
  }
  /// True if complete_done() may find something to do.
  bool may_complete() const {
    return head_ != tail_ && (entry(head_).status != WorkStatus::kSuccess || done(entry(head_)));
  }
  /// The oldest request without a response; tail_ if there is none. Requests that are flushed, or
  /// that the device executed itself, wait for no response.
  std::uint64_t unanswered() const {
    auto i = std::max(answered_, head_);
    while (i != tail_ && (done(entry(i)) || entry(i).status == WorkStatus::kFlushed)) ++i;
    return i;
  }
  void skip_done();
  bool is_released(const Entry& entry);
  void fail(std::uint64_t index, WorkStatus status, Reason reason);
  /// For failures caused by the peer's response, or by its silence.
  void fail_unanswered(WorkStatus status, Reason reason) { fail(unanswered(), status, reason); }
  KeyUser user() const;

  // requester_send.cc
  /// True if there may be something to fetch, send or complete.
  bool has_work() const { return !all_fetched_ || cursor_ != tail_ || head_ != tail_; }
  unsigned send_requests(unsigned quota);
  /// IBTA 10.3.1.6: in SQD, requests already begun are finished, and no other is fetched.
  bool is_held_back(std::uint64_t index) const {
    return index >= begun_ && qp_.state() == QpState::kSqDrain;
  }
  bool may_start(const Entry& entry);
  bool execute_local(Entry& entry);
  std::uint64_t acked_packets() const;
  /// All packets of the entry are sent: moves the cursor to the next entry.
  void pass(const Entry& entry) {
    if (entry.wants_data()) ++reads_in_flight_;
    ++cursor_;
    cursor_packet_ = 0;
  }
  unsigned send_message(Entry& entry, unsigned packets_max, std::uint64_t window);
  unsigned train_length(const Entry& entry, unsigned packets_max) const;
  bool send_message_packets(Entry& entry, unsigned count, bool fills_window);
  std::byte* read_target(const Entry& entry);
  void send_read_request(Entry& entry);
  void send_atomic_request(Entry& entry);
  void send_only(Entry& entry, bool dynamic);
  /// True if the entry is a message of one packet that may be sent now without further checks.
  /// `acked`: number of the oldest unacknowledged packet.
  bool may_send_only(const Entry& entry, std::uint64_t acked) const {
    return entry.only_packet && qp_.state() == QpState::kRts &&
           entry.first_psn - unacked_ < kPsnWindow && entry.first_packet - acked < kWindowPackets;
  }
  void after_only(const Entry& entry);
  bool refer_to_piece(const Entry& entry, wire::Frame& frame);
  bool add_only_payload(Entry& entry, wire::Frame& frame);
  bool check_payload(Entry& entry);
  void fill(wire::Bth& bth, std::uint64_t psn) const;
  static void fill(wire::ExtHeaders& ext, const Entry& entry);
  bool add_payload(Entry& entry, std::uint64_t offset, std::size_t length, wire::Frame& frame);
  void after_packets(Entry& entry, std::uint64_t psn_after, unsigned count = 1);
  void refuse(Entry& entry, WorkStatus status, Reason reason);
  /// Acknowledged PSNs of an entry. Only unanswered(), among the entries that are not done, can
  /// have any.
  std::uint64_t progress(const Entry& entry) const {
    return unacked_ > entry.first_psn ? unacked_ - entry.first_psn : 0;
  }

  // requester_answers.cc
  bool goes_with_completion(const Entry& entry) const;
  bool acknowledge(std::uint64_t target);
  Entry* answered_by(std::uint64_t psn);
  void advance(std::uint64_t target);
  void handle_acknowledge(std::uint64_t psn, const wire::Aeth& aeth);
  void handle_read_response(std::uint64_t psn, const wire::IbPacket& packet,
                            const wire::Frame& frame);
  void put_result(std::uint64_t original, std::span<std::byte> out) const;
  void handle_atomic_response(std::uint64_t psn, const wire::IbPacket& packet);
  void handle_rnr_nak(std::uint8_t timer_code);
  void handle_fatal_nak(wire::NakCode code);
  void implied_nak();
  bool use_retry();
  void rewind();
  /// No effect if the timer is running.
  void arm_ack_timer();

  // requester_ud.cc
  void send_datagram(Entry& entry);
  unsigned send_short_datagrams(unsigned quota);
  void count_datagrams(unsigned sent);
  void keep(const ShortDatagram& datagram);

  // requester_dc.cc
  bool reaches(const Entry& entry);
  void connect(const Entry& entry);
  void fill(wire::DcEth& eth) const;

  // page_faults.cc
  bool wait_for_page(std::uint64_t index, Reason fault, std::uint64_t committed);
  void hold_or_refuse(Entry& entry, Reason fault, std::uint64_t committed);
  void hold_or_fail(Reason fault, std::uint64_t committed);
  void close_fault();

  Engine& engine_;
  QueuePair& qp_;
  Ring* lent_ = nullptr;   ///< grows up to kEntriesMax; null: nothing is in flight
  Entry* ring_ = nullptr;  ///< entries of lent_
  std::uint64_t ring_size_ = 0;
  std::uint64_t ring_mask_ = 0;      ///< ring_size_ - 1: avoids a division by the size of an entry
  std::uint64_t ring_begin_ = 0;     ///< tail_ when the ring was acquired
  std::uint64_t head_ = 0;           ///< oldest request that is not complete
  std::uint64_t answered_ = 0;       ///< requests before this one are answered
  std::uint64_t cursor_ = 0;         ///< request to send next
  std::uint64_t tail_ = 0;           ///< request to fetch next
  std::uint64_t begun_ = 0;          ///< requests before this one have sent something
  std::uint32_t cursor_packet_ = 0;  ///< packet of the cursor's request to send next
  std::uint64_t next_psn_ = 0;       ///< PSN of the next request to fetch
  std::uint64_t unacked_ = 0;        ///< oldest unacknowledged PSN
  std::uint64_t sent_end_ = 0;       ///< PSNs before this one have been sent
  std::uint64_t next_packet_ = 0;    ///< first packet number of the next request to fetch
  std::uint64_t rewound_at_ = UINT64_MAX;  ///< PSN at which an implied NAK last triggered a retry
  std::uint32_t reads_in_flight_ = 0;      ///< READs and atomics between head and cursor
  util::Duration ack_timeout_{};           ///< IBTA 9.7.6.1.3; 0: never
  unsigned ack_waits_ = 0;                 ///< timeouts since the last one that counted as a retry
  std::uint16_t ring_wish_ = kEntriesFirst;  ///< size of the ring to ask for first
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  /// Why nothing is sent.
  enum Waits : std::uint8_t {
    kForTimer = 1,  ///< Timer::kRnr
    kForPage = 2,   ///< page fault of request fault_entry_
    kForRate = 4,   ///< Timer::kRnr, too: the QP is rate-limited
  };
  /// True if sent packets will be retransmitted when the wait is over.
  bool holds_back() const { return (waits_ & (kForTimer | kForPage)) != 0; }
  std::uint8_t waits_ = 0;         ///< Waits bits
  std::uint64_t fault_entry_ = 0;  ///< number of the request with the page fault
  static constexpr std::uint64_t kNoRequest = UINT64_MAX;
  std::uint64_t failed_ = kNoRequest;        ///< the request that completes with its own error
  std::uint64_t flushed_from_ = kNoRequest;  ///< in SQE and ERR: requests before this one are done
  bool all_fetched_ = false;  ///< the send queue was empty, and the doorbell has not rung since
  SeenKey seen_key_;          ///< for payload of single-packet messages
  SeenKey read_key_;          ///< for destinations of single-packet READs
  SendOpcode only_opcode_ = SendOpcode::kNop;  ///< opcode of the last single-packet message
  wire::IbHeader::Form only_form_;             ///< header form for only_opcode_
  /// UD: path of the last datagram.
  struct DatagramPath {
    UdDestination to;
    std::uint32_t generation = 0;  ///< generation of the addresses; 0: header is not set
    wire::IbHeader header;
  };
  std::unique_ptr<DatagramPath> datagram_path_;  ///< UD only, else null
  /// DC: the current connection. Its path is in the QP's attributes.
  struct DcConnection {
    UdDestination to;
    std::uint64_t key = 0;
    std::uint32_t session = 0;
    std::uint64_t first_psn = 0;
    bool open = false;
  };
  std::unique_ptr<DcConnection> dc_;  ///< DC initiator only, else null
};

}  // namespace softhca::rdma
