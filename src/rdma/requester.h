// The requester of a QP: sends the requests of its send queue as packets, and takes the responses.
// Internal: devices use queue_pair.h.
//
//   requester.cc        state changes, sending
//   requester_fast.cc   fast path: responses to everything sent
#pragma once

#include <cstdint>
#include <memory>

#include "rdma/datagrams.h"
#include "rdma/dc_initiator.h"
#include "rdma/packet_writer.h"
#include "rdma/queue_pair.h"
#include "rdma/request_memory.h"
#include "rdma/response_receiver.h"
#include "rdma/retransmission.h"

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
  /// The QP goes from state `from` to RTS.
  void begin_to_send(QpState from);
  /// Stops sending; flush() completes the remaining requests. DC: ends the connection, if there is
  /// one, with a disconnect packet.
  void stop();
  /// DC: ends the connection without a packet, as for a device that is reset.
  void forget_connection() {
    if (dc_ != nullptr) dc_->forget();
  }

  /// The attributes have changed: drops cached key checks.
  void handle_attributes();
  /// Sends at most `quota` packets. Returns how much of it was used; if all of it, there may be
  /// more to do.
  unsigned send(unsigned quota) { return queue().has_work() ? send_requests(quota) : 0; }
  /// Fast path of handle_answer() for an acknowledgement of everything sent, when all posted
  /// requests were sent and none waits for data. False, with no effect, in any other case.
  bool handle_acknowledgement_fast(const wire::TransportHeaders& headers);
  /// The same for a READ response with all the data of the oldest request.
  bool handle_read_response_fast(const wire::TransportHeaders& headers, const wire::Frame& frame);
  /// A packet from the peer's responder (RC).
  void handle_answer(const wire::IbPacket& packet, const wire::Frame& frame) {
    responses_.handle(packet, frame, retransmission_, memory_);
  }
  /// Takes the last `count` READ responses of a train, from `packet` on, all of them Middles.
  /// Returns `count`, or 0 if any needs the slow path.
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count) {
    return responses_.handle_middles(packet, frame, count, retransmission_, memory_);
  }
  void handle_ack_timeout() { retransmission_.handle_ack_timeout(); }
  void handle_rnr_timeout() { retransmission_.handle_rnr_timeout(); }
  void wait_for_rate(util::Time time) { retransmission_.wait_for_rate(time); }
  /// Transport::resume().
  bool resume(bool failed) { return retransmission_.resume(failed); }

  SendQueue& queue() { return retransmission_.queue(); }
  const Retries& retries() const { return retransmission_.retries(); }
  /// The outstanding requests, and the reason if nothing is sent.
  void inspect(util::InspectNode& out) const;

 private:
  SendWindow& window() { return retransmission_.window(); }
  const SendWindow& window() const { return retransmission_.window(); }
  const SendPause& pause() const { return retransmission_.pause(); }
  void refresh_retries() { retransmission_.refresh_retries(); }
  void disconnect();

  unsigned send_requests(unsigned quota);
  bool may_start(const SendEntry& entry);
  bool reaches(const SendEntry& entry);
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
  bool add_only_payload(SendEntry& entry, wire::Frame& frame);
  bool check_payload(SendEntry& entry);
  bool add_payload(SendEntry& entry, std::uint64_t offset, std::size_t length, wire::Frame& frame);

  Engine& engine_;
  QueuePair& qp_;
  Retransmission retransmission_;
  RequestMemory memory_;
  PacketWriter packets_;
  ResponseReceiver responses_;
  std::unique_ptr<Datagrams> datagrams_;  ///< UD only, else null
  std::unique_ptr<DcInitiator> dc_;       ///< DC initiator only, else null
};

}  // namespace softhca::rdma
