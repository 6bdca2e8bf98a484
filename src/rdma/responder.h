// The responder of a QP: takes requests from the wire, executes them, and responds. Internal:
// devices use queue_pair.h.
//
//   responder.cc            state changes, XRC, page faults
//   responder_message.cc    SEND and RDMA WRITE messages of connected QPs
//   responder_reliable.cc   PSN checks, READ, atomics, duplicates
//   responder_unreliable.cc UC and UD
//   responder_at_once.cc    fast path: single-packet requests from a cached path
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rdma/answers.h"
#include "rdma/atomic_results.h"
#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/receive_queue.h"
#include "rdma/seen_key.h"
#include "rdma/verdict.h"
#include "rdma/write_target.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class Responder {
 public:
  Responder(Engine& engine, QueuePair& qp);
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// XRC: the SRQ that the last request named.
  XrcSrqn srqn() const { return receives_.srqn(); }

  // State changes of the QP.
  void reset();
  void start(std::uint32_t psn);
  /// Makes room for as many answers as the current attributes allow.
  void make_room();
  /// The attributes have changed: drops cached key checks.
  void handle_attributes();
  /// The QP is in ERR: sends no more responses.
  void stop();

  /// Handles a request packet for this QP, of its own service.
  void handle_request(const wire::IbPacket& packet, const wire::Frame& frame);
  /// Fast path of handle_request() for a single-packet RDMA WRITE from the RC QP's peer. False,
  /// with no effect, if a check needs the slow path.
  bool take_write(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a SEND, and for a READ, which is answered immediately.
  bool take_send(const wire::TransportHeaders& headers, const wire::Frame& frame);
  bool take_read(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a datagram from the path in `seen`.
  bool take_datagram(const wire::TransportHeaders& headers, const wire::Frame& frame,
                     wire::SeenHeader& seen);
  /// Caches the source of a packet; later packets to take_send() and take_datagram() have the same.
  void remember_source(const wire::IbPacket& packet) { receives_.remember_source(packet); }
  /// Takes `count` Middles of a train, from `packet` on, if the last one needs no response. Returns
  /// `count`, or 0 if any needs the slow path.
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count);
  /// Sends at most `quota` responses. Returns their number; if it equals `quota`, there may be
  /// more.
  unsigned answer(unsigned quota) { return has_answers() ? send_answers(quota) : 0; }
  /// Completes at most `quota` posted receives as flushed. Returns their number.
  unsigned flush(unsigned quota);
  /// QueuePair::give_up_receive().
  bool give_up_receive();
  /// Transport::resume().
  bool resume(bool failed);
  bool waits_for_page() const { return fault_ != Fault::kNone; }

  std::uint32_t expected_psn() const { return numbers_.expected.value(); }
  std::uint32_t msn() const { return numbers_.msn.value(); }
  std::size_t waiting_answers() const { return answers_.ring().size(); }
  bool has_answers() const { return answers_.any(); }
  /// True if nothing that was begun is unfinished.
  bool at_rest() const {
    return message_ == Message::kNone && !receives_.has_taken() && !has_answers() &&
           !waits_for_page();
  }

 private:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  // responder.cc
  Verdict select_srq(const wire::IbPacket& packet);
  void forget_lost_receive();
  Verdict wait_for_page(const PageFault& fault, const Verdict& otherwise);
  Verdict receive_fault(Reason fault, const wire::IbPacket& packet);
  Verdict write_fault(Reason fault, const Verdict& otherwise, const wire::IbPacket& packet);
  void hold_answers();
  void fail_answers();
  void fail_request(bool of_receive);
  void close_fault();
  KeyUser user(Pd pd) const { return {pd, qp_.qpn(), qp_.attributes().reserved_lkey, true}; }
  KeyUser user() const { return user(pd_); }

  // responder_message.cc
  Verdict check_order(const wire::IbPacket& packet) const;
  Verdict handle_message(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict handle_send(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict refuse_length();
  Verdict finish_send(const wire::IbPacket& packet, std::span<const std::byte> data);
  Verdict handle_write(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict begin_write(const wire::IbPacket& packet);
  Verdict invalidate(MKey rkey);
  bool take_middles(const wire::IbPacket& packet, const wire::Frame& frame, std::uint64_t size);
  void finish_message(const wire::IbPacket& packet, ReceiveOpcode opcode, std::uint32_t bytes,
                      std::span<const std::byte> data = {});

  // responder_at_once.cc
  bool is_next(const wire::Bth& bth) const;
  void pass_next(const wire::Bth& bth);

  // responder_reliable.cc
  void handle_reliable(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute_answered(const wire::IbPacket& packet, const wire::Frame& frame);
  Verdict execute_read(const wire::IbPacket& packet);
  Verdict execute_atomic(const wire::IbPacket& packet, const wire::Frame& frame);
  void handle_duplicate(const wire::IbPacket& packet);
  void repeat_read(const wire::IbPacket& packet);
  void repeat_atomic(const wire::IbPacket& packet);
  void push_repeated(Answer answer);
  void refuse(const Verdict& verdict);
  unsigned send_answers(unsigned quota);

  // responder_unreliable.cc
  void handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame);
  void handle_datagram(const wire::IbPacket& packet, const wire::Frame& frame);
  void receive_datagram(const wire::IbPacket& packet, const wire::Frame& frame);
  void drop_datagram(const Verdict& verdict);
  void deliver_datagram(const wire::IbPacket& packet, const wire::Frame& frame);

  Engine& engine_;
  QueuePair& qp_;
  ResponderNumbers numbers_;
  ReceiveQueue receives_;

  // The current message.
  Message message_ = Message::kNone;
  bool uc_skip_ = false;        ///< UC: drop the rest of this message
  Pd pd_;                       ///< PD for the current request's R_Key
  std::uint64_t received_ = 0;  ///< bytes of this message so far
  WriteTarget write_;
  /// The operation that waits for a page.
  enum class Fault : std::uint8_t {
    kNone,
    kReceive,  ///< the next expected request, for its receive buffer
    kAccess,   ///< the next expected request, for the memory of its R_Key
    kAnswers,  ///< the oldest answer, and all behind it
  };
  Fault fault_ = Fault::kNone;
  SeenKey seen_key_;  ///< for single-packet WRITEs
  SeenKey read_key_;  ///< for single-packet READs

  Answers answers_;
  bool silent_ = false;  ///< send no NAK for a PSN gap until the expected packet has arrived
  bool fatal_ = false;   ///< the QP goes to ERR once the reply is sent
  AtomicResults atomics_;
};

}  // namespace softhca::rdma
