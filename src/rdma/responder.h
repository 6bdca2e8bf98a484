// The responder of a QP: takes requests from the wire, executes them, and responds. Internal:
// devices use queue_pair.h.
//
//   responder.cc        state changes, PSN order, duplicates, refusals, page faults
//   responder_fast.cc   fast path: single-packet requests from a cached path
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/answers.h"
#include "rdma/datagram_receiver.h"
#include "rdma/key_cache.h"
#include "rdma/message_receiver.h"
#include "rdma/queue_pair.h"
#include "rdma/reads_and_atomics.h"
#include "rdma/request_outcome.h"
#include "rdma/responder_fault.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class Responder {
 public:
  Responder(Engine& engine, QueuePair& qp);
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// XRC: the SRQ that the last request named.
  XrcSrqn srqn() const { return message_.receives().srqn(); }

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
  bool handle_write_fast(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a SEND, and for a READ, which is answered immediately.
  bool handle_send_fast(const wire::TransportHeaders& headers, const wire::Frame& frame);
  bool handle_read_fast(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// The same for a datagram from the path in `seen`.
  bool handle_datagram_fast(const wire::TransportHeaders& headers, const wire::Frame& frame,
                            wire::AcceptedHeader& seen);
  /// Caches the source of a packet; later packets to handle_send_fast() and handle_datagram_fast()
  /// have the same.
  void remember_source(const wire::IbPacket& packet) {
    message_.receives().remember_source(packet);
  }
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
  bool waits_for_page() const { return fault_.is_open(); }

  std::uint32_t expected_psn() const { return numbers_.expected.value(); }
  std::uint32_t msn() const { return numbers_.msn.value(); }
  std::size_t waiting_answers() const { return answers_.ring().size(); }
  bool has_answers() const { return answers_.any(); }
  /// True if nothing that was begun is unfinished.
  bool at_rest() const {
    return !message_.has_begun() && !message_.receives().has_taken() && !has_answers() &&
           !waits_for_page();
  }

 private:
  // responder.cc
  void handle_reliable(const wire::IbPacket& packet, const wire::Frame& frame);
  void handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame);
  RequestOutcome execute(const wire::IbPacket& packet, const wire::Frame& frame);
  RequestOutcome execute_answered(const wire::IbPacket& packet, const wire::Frame& frame);
  void handle_duplicate(const wire::IbPacket& packet);
  void repeat_read(const wire::IbPacket& packet);
  void refuse(const RequestOutcome& outcome);
  unsigned send_answers(unsigned quota);
  void hold_answers();
  void fail_answers();
  void fail_request(bool of_receive);

  // responder_fast.cc
  bool is_next(const wire::Bth& bth) const;
  void pass_next(const wire::Bth& bth);

  Engine& engine_;
  QueuePair& qp_;
  ResponderNumbers numbers_;
  bool silent_ = false;   ///< send no NAK for a PSN gap until the expected packet has arrived
  bool fatal_ = false;    ///< the QP goes to ERR once the reply is sent
  bool uc_skip_ = false;  ///< UC: drop the rest of this message
  ResponderFault fault_;
  Answers answers_;
  KeyCache key_cache_;  ///< for single-packet WRITEs
  KeyCache read_key_;   ///< for single-packet READs
  MessageReceiver message_;
  ReadsAndAtomics reads_;
  DatagramReceiver datagrams_;
};

}  // namespace softhca::rdma
