// The responder of a QP: takes requests from the wire, carries them out, and answers.
// Internal: devices see queue_pair.h.
//
// Answers leave in the order of their PSNs, from run(): READ and atomic responses wait in
// `answers_`, and behind them at most one acknowledgement or NAK (`reply_`), which stands for all
// before it. So one acknowledgement answers all requests that arrived in one batch; it leaves at
// once when the fabric has nothing more to deliver, as then nothing can come that it would answer.
//
//   responder.cc            state, receive queue, flushing
//   responder_message.cc    SEND and RDMA WRITE messages of connected QPs
//   responder_reliable.cc   PSN checks, READ, duplicates
//   responder_atomics.cc    atomics
//   responder_answers.cc    sending the answers
//   responder_unreliable.cc UC and UD
//   responder_at_once.cc    requests of one packet from a peer that is known
//   page_faults.cc          waiting for memory that is not there
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rdma/atomic_results.h"
#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/seen_key.h"
#include "rdma/spare_rings.h"
#include "rdma/work_queues.h"
#include "rdma/work_request.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class Responder {
 public:
  /// A ring of answers has this size first, and then doubles.
  static constexpr std::size_t kAnswersFirst = 4;

  Responder(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp) {}
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// XRC: that the last request named.
  XrcSrqn srqn() const { return srqn_; }

  // State changes of the QP.
  void reset();
  void start(std::uint32_t psn);
  /// For as many answers as the attributes allow (now).
  void make_room();
  /// The attributes have changed: what was allowed may be so no longer.
  void handle_attributes() { seen_key_ = receive_key_ = read_key_ = {}; }
  /// The QP is in ERR: no more answers.
  void stop();

  /// A request packet for this QP, of its own service.
  void handle_request(const wire::IbPacket& packet, const wire::Frame& frame);
  /// An RDMA WRITE of one packet to an RC QP, as most messages are, from the QP's peer. False, and
  /// nothing is done, if one of its checks wants a closer look: handle_request() gives that.
  bool take_write(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a SEND, and for a READ, which is answered at once.
  bool take_send(const wire::TransportHeaders& headers, const wire::Frame& frame);
  bool take_read(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a datagram of the path that is `seen`.
  bool take_datagram(const wire::TransportHeaders& headers, const wire::Frame& frame,
                     wire::SeenHeader& seen);
  /// Packets that take_send() and take_datagram() get come from where this one does.
  void remember_source(const wire::IbPacket& packet) {
    source_ = {};
    source_.opcode = ReceiveOpcode::kSend;
    source_.status = WorkStatus::kSuccess;
    show_source(packet, source_);
  }
  /// `count` Middles of a train, from `packet` on, whose last needs no answer. Returns how many
  /// were done at once: all of them, or none if one needs a closer look.
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count);
  /// Sends at most `quota` answers; returns how many. All of it: there may be more.
  unsigned answer(unsigned quota) {
    return reply_due_ || answers_count_ != 0 ? send_answers(quota) : 0;
  }
  /// Completes at most `quota` posted receives as flushed; returns how many there were.
  unsigned flush(unsigned quota);
  /// Transport::resume().
  bool resume(bool failed);
  bool waits_for_page() const { return fault_ != Fault::kNone; }

  std::uint32_t expected_psn() const { return expected_.value(); }
  std::uint32_t msn() const { return msn_.value(); }
  std::size_t waiting_answers() const { return answers_count_; }
  bool has_answers() const { return reply_due_ || answers_count_ != 0; }
  /// Nothing was begun that is not done.
  bool at_rest() const {
    return message_ == Message::kNone && !has_receive_ && !has_answers() && !waits_for_page();
  }

 private:
  friend struct LentRings;
  /// How a request fared; what that means for the QP depends on the service.
  struct Verdict {
    enum class Kind : std::uint8_t { kOk, kNotReady, kInvalid, kAccess, kOperation };
    Kind kind = Kind::kOk;
    Reason reason = Reason::kNone;
    bool completed = false;  ///< a receive request was completed in error: no event besides

    /// What was wrong with the memory of an R_Key: what the key, or one that it leads to, does not
    /// grant, or what only this host can have broken (IBTA 9.7.5.2.5).
    static Verdict of_memory(Reason fault) {
      return {fault == Reason::kMemoryUnreachable ? Kind::kOperation : Kind::kAccess, fault};
    }
    bool ok() const { return kind == Kind::kOk; }
  };

  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  /// A READ or atomic that is to be answered.
  struct Answer {
    wire::Psn next;          ///< PSN of the next response packet
    std::uint32_t left = 0;  ///< response packets to send
    bool atomic = false;
    bool repeated = false;  ///< for a duplicate request
    bool begun = false;     ///< a response packet has been sent
    wire::Msn msn;
    Pd pd;
    MKey rkey;
    std::uint64_t address = 0;   ///< of what is not sent yet
    std::uint32_t length = 0;    ///< bytes not sent yet
    std::uint64_t original = 0;  ///< atomic: what stood there before
  };

  // responder.cc
  Verdict take_receive();
  Verdict miss_receive(Fetch fetched);
  void show_source(const wire::IbPacket& packet, ReceiveCompletion& completion) const;
  void end_receive(ReceiveCompletion& completion);
  void complete_receive(ReceiveCompletion& completion);
  void complete_receive_with(ReceiveCompletion& completion, std::span<const std::byte> data);
  void fail_receive(WorkStatus status, Reason reason);
  Verdict select_srq(const wire::IbPacket& packet);
  void forget_lost_receive();
  KeyUser user(Pd pd) const { return {pd, qp_.qpn(), qp_.attributes().reserved_lkey, true}; }
  KeyUser user() const { return user(pd_); }
  KeyUser receive_user() const { return user(receive_.pd.value_or(pd_)); }

  // responder_message.cc
  Verdict check_order(const wire::IbPacket& packet) const;
  Verdict check_size(const wire::IbPacket& packet) const;
  Verdict handle_message(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict handle_send(const wire::IbPacket& packet, const wire::Frame& frame);
  bool goes_with_completion(const wire::IbPacket& packet) const;
  Verdict finish_send(const wire::IbPacket& packet, std::span<const std::byte> data);
  Verdict handle_write(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict begin_write(const wire::IbPacket& packet);
  Verdict invalidate(MKey rkey);
  KeyCheck find_write_key(std::uint64_t size);
  bool take_middles(const wire::IbPacket& packet, const wire::Frame& frame, std::uint64_t size);
  void finish_message(const wire::IbPacket& packet, ReceiveOpcode opcode, std::uint32_t bytes,
                      std::span<const std::byte> data = {});

  // responder_at_once.cc
  bool is_next(const wire::Bth& bth) const;
  void pass_next(const wire::Bth& bth);
  std::byte* take_piece(SeenKey& key, std::uint32_t bytes, std::uint32_t& cookie);
  std::byte* place_taken(SeenKey& key, std::uint32_t bytes, std::uint32_t& cookie);
  void keep(const ReceivePiece& piece);
  void complete_at_once(const wire::TransportHeaders& headers, std::uint32_t cookie,
                        std::uint32_t bytes);

  // responder_reliable.cc
  void handle_reliable(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute_answered(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute_read(const wire::IbPacket& packet);
  void handle_duplicate(const wire::IbPacket& packet);
  void repeat_read(const wire::IbPacket& packet);
  bool make_room_for(wire::Psn psn);
  void push_repeated(Answer answer);
  static QpEvent event_of(const Verdict& verdict);
  void refuse(const Verdict& verdict);
  std::uint32_t read_packets(std::uint32_t length) const;

  // responder_atomics.cc
  struct Atomic;
  Verdict execute_atomic(const wire::IbPacket& packet, const wire::Frame& frame);
  bool swap(MemoryKey& key, std::uint64_t address, const Atomic& atomic, std::uint64_t& original);
  void repeat_atomic(const wire::IbPacket& packet);

  // responder_answers.cc
  void grow_answers();
  void give_answers();
  std::size_t answers_room() const { return answers_ == nullptr ? 0 : answers_->size; }
  Answer& answer_at(std::size_t i) {
    return answers_->entries[(answers_first_ + i) & (answers_->size - 1)];
  }
  void push_answer(const Answer& answer);
  void charge_answer(std::uint32_t bytes);
  void answer_at_once();
  void pop_answer(bool front);
  void clear_answers() { answers_count_ = repeats_count_ = 0; }
  unsigned send_answers(unsigned quota);
  unsigned send_answer(Answer& answer, unsigned packets_max);
  bool send_answer_packets(Answer& answer, unsigned count);
  unsigned train_length(const Answer& answer, unsigned packets_max) const;
  void send_reply();
  void fill(wire::Bth& bth, wire::Psn psn) const;
  void reply(wire::AethType type, std::uint8_t value);
  void acknowledge();
  void acknowledge_now();
  void acknowledge_end();

  // responder_unreliable.cc
  void handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame);
  void handle_datagram(const wire::IbPacket& packet, const wire::Frame& frame);
  void receive_datagram(const wire::IbPacket& packet, const wire::Frame& frame);
  void drop_datagram(const Verdict& verdict);
  void deliver_datagram(const wire::IbPacket& packet, const wire::Frame& frame);

  // page_faults.cc
  Verdict wait_for_page(const PageFault& fault, const Verdict& otherwise);
  Verdict receive_fault(Reason fault, const wire::IbPacket& packet);
  Verdict write_fault(Reason fault, const Verdict& otherwise, const wire::IbPacket& packet);
  void hold_answers();
  void fail_answers();
  void fail_request(bool of_receive);
  void close_fault();

  Engine& engine_;
  QueuePair& qp_;
  wire::Psn expected_;
  wire::Msn msn_;

  // The message that is arriving.
  Message message_ = Message::kNone;
  bool has_receive_ = false;       ///< receive_ was taken and is not complete
  bool uc_skip_ = false;           ///< UC: the rest of this message is dropped
  Pd pd_;                          ///< that the present request's R_Key is checked with
  XrcSrqn srqn_;                   ///< XRC: that the present request names
  std::uint64_t srq_ = 0;          ///< the incarnation of that queue
  XrcSrqn receive_srqn_;           ///< XRC: where receive_ is from
  std::uint64_t receive_srq_ = 0;  ///< the incarnation of that queue
  ReceiveRequest receive_;
  /// Where the last packet came from whose path was remembered; what else completions tell is set
  /// for each.
  ReceiveCompletion source_{};
  std::uint64_t room_ = 0;      ///< bytes of receive_
  std::uint64_t received_ = 0;  ///< bytes of this message so far
  std::uint64_t write_address_ = 0;
  MKey write_rkey_;
  MemoryKey* write_key_ = nullptr;  ///< as the first packet of the message found it
  std::uint64_t write_keys_ = 0;    ///< KeyTable::generation() then
  std::uint64_t write_left_ = 0;    ///< bytes that must still come
  /// What waits for a page.
  enum class Fault : std::uint8_t {
    kNone,
    kReceive,  ///< the request that is expected next, for the buffer of its receive request
    kAccess,   ///< likewise, for what its R_Key stands for
    kAnswers,  ///< the oldest answer, and all behind it
  };
  Fault fault_ = Fault::kNone;
  Reason answer_fault_ = Reason::kNone;  ///< why an answer could not be sent
  SeenKey seen_key_;                     ///< of WRITEs of one packet; UD: of receive requests
  SeenKey receive_key_;                  ///< of receive requests for SENDs of one packet
  SeenKey read_key_;                     ///< of READs of one packet

  // What is to be answered.
  SpareRings<Answer>::Ring* answers_ = nullptr;  ///< lent; null: nothing waits
  std::size_t answers_max_ = 0;                  ///< that may wait
  std::size_t answers_first_ = 0;
  std::size_t answers_count_ = 0;
  std::size_t repeats_count_ = 0;  ///< of these, repeated ones
  bool reply_due_ = false;
  wire::AethType reply_type_ = wire::AethType::ACK;
  std::uint8_t reply_value_ = 0;
  bool silent_ = false;  ///< no NAK for a gap in the PSNs until the expected packet has come
  bool fatal_ = false;   ///< after the reply the QP goes to ERR
  AtomicResults atomics_;
};

}  // namespace softhca::rdma
