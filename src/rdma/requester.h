// The requester of a QP: takes send requests from the device, sends them as packets, and completes
// them in order. Internal: devices see queue_pair.h.
//
// Send requests wait in a ring, three places in it matter:
//
//      head_                 cursor_                tail_
//   ...  | sent, not complete  |  to be (re)sent      |  not fetched yet
//
// The cursor has a packet number within its request too. Going back for a retransmission moves the
// cursor to the oldest packet that is not acknowledged (go-back-N). PSNs are counted in 64 bits
// here, so that they never wrap; the wire has their low 24.
//
// The head may be answered already: its completion waits until the fabric has read the frames that
// refer to its payload. Answers, NAKs and retries are about unanswered(), never about the head.
//
//   requester.cc            fetching, completing, flushing
//   requester_send.cc       packets of RC and UC
//   requester_answers.cc    acknowledgements, read and atomic responses, timers (RC)
//   requester_ud.cc         datagrams
//   requester_dc.cc         the connections of a DC initiator
//   page_faults.cc          waiting for memory that is not there
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
  /// Request packets in flight, and requests begun, per QP. Bounds what a fabric must hold.
  static constexpr std::uint64_t kWindowPackets = 256;
  static constexpr std::uint64_t kEntriesMax = 256;
  /// A ring grows to this size first, and then doubles.
  static constexpr std::uint64_t kEntriesFirst = 8;
  /// An acknowledgement is asked for after so many packets of a long message, besides its last.
  static constexpr std::uint64_t kAckInterval = 128;
  /// A train as long as this fits into a frame even if every page lies elsewhere.
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
  /// Nothing more is sent; flush() ends what is left.
  void stop();
  /// Gives the ring back if it is empty. To be asked when others may need it.
  void give_back();
  /// DC: the connection, if there is one, ends.
  void disconnect();
  /// Without a word, as it is with a device that is reset.
  void forget_connection() {
    if (dc_ != nullptr) dc_->open = false;
  }
  /// From SQE back to RTS: what was fetched is flushed, in its turn.
  void restart();

  /// There may be requests that were not fetched.
  void notice_posted() { all_fetched_ = !qp_.options().has_send_queue; }
  /// The attributes have changed: what was allowed may be so no longer.
  void handle_attributes();
  /// Sends at most `quota` packets; returns how much of it was used. All of it: there may be more.
  unsigned send(unsigned quota) { return has_work() ? send_requests(quota) : 0; }
  /// Completes at most `quota` posted requests as flushed; returns how many there were.
  unsigned flush(unsigned quota);
  /// An acknowledgement, from the QP's peer, of all that was sent, when all that is posted was sent
  /// and none of it waits for data, as mostly. False, and nothing is done, if it is something else:
  /// handle_answer() takes that.
  bool take_acknowledgement(const wire::TransportHeaders& headers);
  /// The same for all the data of the oldest request, a READ of one packet.
  bool take_read_response(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// A packet from the peer's responder (RC).
  void handle_answer(const wire::IbPacket& packet, const wire::Frame& frame);
  /// The last `count` READ responses of a train, from `packet` on, all of them Middles. Returns how
  /// many were taken: all at once, or none if one needs a closer look.
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count);
  void handle_ack_timeout();
  void handle_rnr_timeout();
  /// Transport::resume().
  bool resume(bool failed);

  /// All requests that were begun are complete.
  bool idle() const { return head_ == begun_; }
  std::uint32_t next_psn() const;
  std::uint32_t last_acked_psn() const;
  std::uint64_t begun() const { return begun_; }
  std::uint64_t outstanding() const { return begun_ - head_; }
  std::uint64_t in_flight() const;
  std::uint8_t retries_left() const { return retries_left_; }
  std::uint8_t rnr_retries_left() const { return rnr_retries_left_; }
  /// Nothing is sent before `time`: the QP is slow (congestion.h).
  void wait_for_rate(util::Time time);
  bool waits_for_rnr() const { return (waits_ & kForTimer) != 0; }
  bool waits_for_page() const { return (waits_ & kForPage) != 0; }
  /// The oldest request is done, but the fabric has not read all of its payload.
  bool waits_for_release() const;

  bool drain_reported = false;

 private:
  friend struct LentRings;
  struct Entry {
    SendRequest request;
    std::uint32_t length = 0;   ///< bytes of the message
    std::uint32_t packets = 0;  ///< request packets
    std::uint32_t psns = 0;     ///< 0: not on the wire (no-operation, local)
    std::uint64_t first_psn = 0;
    std::uint64_t first_packet = 0;  ///< number of its first request packet, of all requests
    /// Not success: ends so when its turn to complete comes.
    WorkStatus status = WorkStatus::kSuccess;
    Reason reason = Reason::kNone;
    bool executed = false;         ///< not on the wire: done
    bool in_hand = false;          ///< likewise: begun
    bool only_packet = false;      ///< a message of one packet to the peer, that need not wait
    std::uint64_t last_frame = 0;  ///< the last that refers to its payload (fabric::Port::transmit)

    /// For a request that is to be fetched; the vectors keep their memory.
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
    /// The answer brings data: an acknowledgement alone does not complete it.
    bool wants_data() const { return is_read() || is_atomic(); }
    /// Of a READ: what its answer brought, and the device takes with the completion.
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
  /// The entry at the tail is the last one now.
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
  /// All that it asked for has happened; its memory may still be referred to.
  bool done(const Entry& e) const {
    if (e.status != WorkStatus::kSuccess) return false;
    return e.psns == 0 ? e.executed : unacked_ >= e.end_psn();
  }
  /// Whether complete_done() may find something.
  bool may_complete() const {
    return head_ != tail_ && (entry(head_).status != WorkStatus::kSuccess || done(entry(head_)));
  }
  /// The oldest request without an answer; tail_ if there is none. What the device flushes or has
  /// carried out by itself waits for no answer.
  std::uint64_t unanswered() const {
    auto i = std::max(answered_, head_);
    while (i != tail_ && (done(entry(i)) || entry(i).status == WorkStatus::kFlushed)) ++i;
    return i;
  }
  void skip_done();
  bool is_released(const Entry& entry);
  void fail(std::uint64_t index, WorkStatus status, Reason reason);
  /// For what the peer did, or did not do.
  void fail_unanswered(WorkStatus status, Reason reason) { fail(unanswered(), status, reason); }
  KeyUser user() const;

  // requester_send.cc
  /// Whether there is something to fetch, to send or to complete.
  bool has_work() const { return !all_fetched_ || cursor_ != tail_ || head_ != tail_; }
  unsigned send_requests(unsigned quota);
  /// IBTA 10.3.1.6: in SQD what was begun is finished, and nothing of the others is processed.
  bool is_held_back(std::uint64_t index) const {
    return index >= begun_ && qp_.state() == QpState::kSqDrain;
  }
  bool may_start(const Entry& entry);
  bool execute_local(Entry& entry);
  std::uint64_t acked_packets() const;
  /// All of the entry is sent: the next one is next.
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
  /// Whether a message of one packet may be sent now, and nothing else need be asked.
  /// `acked`: number of the oldest packet that is not acknowledged.
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
  /// PSNs of an entry that are acknowledged: of those that are not done only unanswered() has any.
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
  /// Unless it runs already.
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
  Entry* ring_ = nullptr;  ///< its entries
  std::uint64_t ring_size_ = 0;
  std::uint64_t ring_mask_ = 0;      ///< its size - 1: to divide by the size of an entry takes long
  std::uint64_t ring_begin_ = 0;     ///< tail_ when the ring was lent
  std::uint64_t head_ = 0;           ///< oldest request that is not complete
  std::uint64_t answered_ = 0;       ///< requests before this one have their answers
  std::uint64_t cursor_ = 0;         ///< request to be sent next
  std::uint64_t tail_ = 0;           ///< request to be fetched next
  std::uint64_t begun_ = 0;          ///< requests before this one have sent something
  std::uint32_t cursor_packet_ = 0;  ///< packet of the cursor's request to be sent next
  std::uint64_t next_psn_ = 0;       ///< of the next request that is fetched
  std::uint64_t unacked_ = 0;        ///< oldest PSN without answer
  std::uint64_t sent_end_ = 0;       ///< PSNs before this one have been sent
  std::uint64_t next_packet_ = 0;    ///< number of the first request packet of the next request
  std::uint64_t rewound_at_ = UINT64_MAX;    ///< PSN for which an implied NAK was acted on
  std::uint32_t reads_in_flight_ = 0;        ///< READs and atomics between head and cursor
  util::Duration ack_timeout_{};             ///< IBTA 9.7.6.1.3; 0: never
  unsigned ack_waits_ = 0;                   ///< timeouts since one that counted
  std::uint16_t ring_wish_ = kEntriesFirst;  ///< size of the ring that is asked for first
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  /// What nothing is sent for.
  enum Waits : std::uint8_t {
    kForTimer = 1,  ///< Timer::kRnr
    kForPage = 2,   ///< of request fault_entry_
    kForRate = 4,   ///< Timer::kRnr, too: it is slow
  };
  /// What was sent will be sent again, when it has waited.
  bool holds_back() const { return (waits_ & (kForTimer | kForPage)) != 0; }
  std::uint8_t waits_ = 0;         ///< Waits bits
  std::uint64_t fault_entry_ = 0;  ///< number of the request whose page is not there
  static constexpr std::uint64_t kNoRequest = UINT64_MAX;
  std::uint64_t failed_ = kNoRequest;        ///< the request that completes with its own error
  std::uint64_t flushed_from_ = kNoRequest;  ///< in SQE and ERR: requests before this one are done
  bool all_fetched_ = false;  ///< the send queue was empty, and nobody has rung since
  SeenKey seen_key_;          ///< of payload of one packet
  SeenKey read_key_;          ///< of what READs of one packet bring
  SendOpcode only_opcode_ = SendOpcode::kNop;  ///< of the last message of one packet
  wire::IbHeader::Form only_form_;             ///< its packet's
  /// UD: the way that the last datagram took.
  struct DatagramPath {
    UdDestination to;
    std::uint32_t generation = 0;  ///< of the addresses; 0: no header yet
    wire::IbHeader header;
  };
  std::unique_ptr<DatagramPath> datagram_path_;  ///< null but for UD
  /// DC: to whom the QP is connected. The path itself is the QP's attribute.
  struct DcConnection {
    UdDestination to;
    std::uint64_t key = 0;
    std::uint32_t session = 0;
    std::uint64_t first_psn = 0;
    bool open = false;
  };
  std::unique_ptr<DcConnection> dc_;  ///< null but for DC
};

}  // namespace softhca::rdma
