// The requester of a QP: sends the requests of its send queue as packets, and takes the responses.
// Internal: devices use queue_pair.h.
//
//   requester.cc            state changes, sending, page faults
//   requester_answers.cc    acknowledgements, READ and atomic responses, timers (RC)
#pragma once

#include <cstdint>
#include <memory>

#include "rdma/datagrams.h"
#include "rdma/dc_initiator.h"
#include "rdma/packet_writer.h"
#include "rdma/queue_pair.h"
#include "rdma/request_memory.h"
#include "rdma/retries.h"
#include "rdma/send_pause.h"
#include "rdma/send_queue.h"

namespace softhca::rdma {

class Requester {
 public:
  /// Most request packets in flight per QP. Bounds what a fabric must hold.
  static constexpr std::uint64_t kWindowPackets = 256;
  /// A long message requests an acknowledgement every kAckInterval packets, and with its last
  /// packet.
  static constexpr std::uint64_t kAckInterval = 128;
  /// A train of this length fits into a frame even if every page is separate.
  static constexpr unsigned kScatteredTrain = wire::Frame::kSegmentsMax / 2 - 1;
  /// IBTA 9.7.1: at most 2^23 PSNs may be outstanding.
  static constexpr std::uint64_t kPsnWindow = 1u << 23;

  Requester(Engine& engine, QueuePair& qp);
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  // State changes of the QP.
  void reset();
  void start(std::uint32_t psn);
  void refresh_retries() { retries_.refresh(qp_.attributes()); }
  /// Stops sending; flush() completes the remaining requests.
  void stop();
  /// DC: ends the connection, if there is one, with a disconnect packet.
  void disconnect();
  /// The same without a packet, as for a device that is reset.
  void forget_connection() {
    if (dc_ != nullptr) dc_->forget();
  }

  /// The attributes have changed: drops cached key checks.
  void handle_attributes();
  /// Sends at most `quota` packets. Returns how much of it was used; if all of it, there may be
  /// more to do.
  unsigned send(unsigned quota) { return queue_.has_work() ? send_requests(quota) : 0; }
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

  SendQueue& queue() { return queue_; }
  const SendQueue& queue() const { return queue_; }
  const Retries& retries() const { return retries_; }
  const SendPause& pause() const { return pause_; }
  /// Sends nothing before `time`: the QP is rate-limited (congestion.h).
  void wait_for_rate(util::Time time);

 private:
  SendWindow& window() { return queue_.window(); }
  const SendWindow& window() const { return queue_.window(); }

  // requester.cc
  unsigned send_requests(unsigned quota);
  bool may_start(const SendEntry& entry);
  bool reaches(const SendEntry& entry);
  bool execute_local(SendEntry& entry);
  unsigned send_message(SendEntry& entry, unsigned packets_max, std::uint64_t room);
  unsigned train_length(const SendEntry& entry, unsigned packets_max) const;
  bool send_message_packets(SendEntry& entry, unsigned count, bool fills_window);
  void send_read_request(SendEntry& entry);
  void send_atomic_request(SendEntry& entry);
  void send_only(SendEntry& entry, bool dynamic);
  void send_datagram(SendEntry& entry);
  /// True if the entry is a message of one packet that may be sent now without further checks.
  /// `acked`: number of the oldest unacknowledged packet.
  bool may_send_only(const SendEntry& entry, std::uint64_t acked) const {
    return entry.only_packet && qp_.state() == QpState::kRts &&
           entry.first_psn - window().unacked() < kPsnWindow &&
           entry.first_packet - acked < kWindowPackets;
  }
  void after_only(const SendEntry& entry);
  bool add_only_payload(SendEntry& entry, wire::Frame& frame);
  bool check_payload(SendEntry& entry);
  bool add_payload(SendEntry& entry, std::uint64_t offset, std::size_t length, wire::Frame& frame);
  void after_packets(const SendEntry& entry, std::uint64_t psn_after, unsigned count = 1);

  bool wait_for_page(std::uint64_t index, Reason fault, std::uint64_t committed);
  void hold_or_refuse(SendEntry& entry, Reason fault, std::uint64_t committed);
  void hold_or_fail(Reason fault, std::uint64_t committed);
  void close_fault();

  // requester_answers.cc
  bool acknowledge(std::uint64_t target);
  SendEntry* answered_by(std::uint64_t psn);
  void advance(std::uint64_t target);
  void handle_acknowledge(std::uint64_t psn, const wire::Aeth& aeth);
  void handle_read_response(std::uint64_t psn, const wire::IbPacket& packet,
                            const wire::Frame& frame);
  void handle_atomic_response(std::uint64_t psn, const wire::IbPacket& packet);
  void handle_rnr_nak(std::uint8_t timer_code);
  void handle_fatal_nak(wire::NakCode code);
  void implied_nak();
  bool use_retry();
  void rewind();
  /// No effect if the timer is running.
  void arm_ack_timer();

  Engine& engine_;
  QueuePair& qp_;
  SendQueue queue_;
  Retries retries_;
  SendPause pause_;
  RequestMemory memory_;
  PacketWriter packets_;
  std::unique_ptr<Datagrams> datagrams_;  ///< UD only, else null
  std::unique_ptr<DcInitiator> dc_;       ///< DC initiator only, else null
};

}  // namespace softhca::rdma
