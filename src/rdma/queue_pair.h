// A queue pair of the transport: attributes and state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "rdma/counters.h"
#include "rdma/path.h"
#include "rdma/qp_list.h"
#include "rdma/timers.h"
#include "rdma/types.h"
#include "rdma/xrc_srqs.h"
#include "spec/infiniband/constants.h"
#include "util/inspect.h"
#include "wire/accepted_header.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

/// READs, WRITEs and atomics that the QP takes from its peer.
struct AccessFlags {
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;
  std::uint8_t masked_atomic_sizes = 0;  ///< bytes of the masked atomics among them: 4, 8, or both
};

/// The attributes that CREATE and MODIFY set (names of IBTA 11.2.4.2).
struct QpAttributes {
  Pd pd;
  Path path;  ///< to the peer; UD: only own_source is used, as the address to receive on
  std::uint32_t path_mtu = 1024;  ///< bytes; UD: the port's MTU
  /// Most bytes of a message that the QP sends, and of a READ or WRITE of its peer. Set together
  /// with the path MTU.
  std::uint64_t message_max = spec::infiniband::kMaxMessageBytes;
  Qpn remote_qpn;
  std::uint32_t qkey = 0;
  std::uint16_t pkey_index = 0;  ///< index in Transport::set_pkeys()
  std::uint32_t rq_psn = 0;      ///< next expected PSN
  std::uint32_t sq_psn = 0;      ///< next PSN to send
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;            ///< 7: unlimited
  std::uint8_t ack_timeout = 14;         ///< 4.096 us * 2^n; 0: never
  std::uint8_t min_rnr_timer = 0;        ///< code of the RNR NAK timer field
  std::uint32_t max_rd_atomic = 1;       ///< outstanding READs and atomics as requester
  std::uint32_t max_dest_rd_atomic = 1;  ///< as responder
  AccessFlags access_flags;
  bool reserved_lkey = false;          ///< may use the reserved LKey
  std::optional<Qpn> deth_source_qpn;  ///< UD: source QPN in the DETH; nothing: the QP's own
};

/// Data that a device takes with the completion, instead of in the buffers of the request: the
/// whole message, if it has at most this many bytes. At most kCompletionDataMax.
struct CompletionData {
  std::uint32_t of_sends = 0;  ///< for SENDs that the QP receives; not for UD
  std::uint32_t of_reads = 0;  ///< for READs that the QP has posted, if they are signaled
};
inline constexpr std::uint32_t kCompletionDataMax = 64;

/// Properties that are fixed at CREATE.
struct QpOptions {
  bool has_send_queue = true;
  bool has_receive_queue = true;          ///< its own, not an SRQ
  bool uses_srq = false;                  ///< receives come from a shared receive queue
  XrcDomain xrc_domain{};                 ///< XRC target: the domain whose SRQs requests may use
  bool block_multicast_loopback = false;  ///< UD: drop multicast packets from this port's own GIDs
  /// UD: the first 40 bytes of a receive buffer hold the GRH, or its replacement.
  bool datagram_header = true;
  CompletionData completion_data{};
  /// Results of 8-byte atomics are stored in wire order, most significant byte first.
  bool big_endian_atomics = false;
  QpCounters* counters = nullptr;  ///< the device's counters to use; null: none
};

class Engine;
class PostedRequests;
class Requester;
class Responder;
class WorkQueues;
struct UdDestination;

/// Headers that are valid for one generation of the port's addresses.
template <class Header>
struct CachedHeader {
  Header header;
  std::uint32_t generation = 0;  ///< 0: none is cached
};

class QueuePair {
 public:
  QueuePair(Engine& engine, Qpn qpn, QpType type, const QpAttributes& attributes,
            const QpOptions& options, WorkQueues& queues);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  Qpn qpn() const { return qpn_; }
  QpType type() const { return service_.type; }
  /// The operations that QPs of this type may use.
  const ServiceRules& service() const { return service_; }
  QpState state() const { return state_; }
  const QpAttributes& attributes() const { return attributes_; }
  /// The P_Key of its packets: the table entry at pkey_index, as of the last refresh_pkey().
  std::uint16_t pkey() const { return pkey_; }
  const QpOptions& options() const { return options_; }
  /// The device's queues.
  WorkQueues& queues() const { return queues_; }
  /// Where requests come from: the queues, or what set_requests() has put before them.
  PostedRequests& requests() const { return *requests_; }
  /// For a device that injects faults. Call it outside of a turn.
  void set_requests(PostedRequests& requests) { requests_ = &requests; }
  QpCounters& counters() const { return *counters_; }
  void set_counters(QpCounters* counters);
  /// Takes effect from the next message on.
  void set_completion_data(const CompletionData& data) { options_.completion_data = data; }
  /// True if the QP is in SQD and everything begun is complete.
  bool drained() const;
  /// Completes a receive request that was taken and waits for the next message, as flushed. False,
  /// with no effect, if a message is using it. Call before the QP gets another shared receive
  /// queue: the request is in the PD of the old one, which may then be destroyed.
  bool give_up_receive();
  /// Takes the P_Key that is now at pkey_index. Call after Transport::set_pkeys().
  void refresh_pkey();
  /// True if posted receives, including later ones, end in kFlushed. The device must then call
  /// notice_receive() for new ones.
  bool flushes_receives() const;

  // The values of QUERY QP.
  std::uint32_t next_send_psn() const;
  std::uint32_t last_acked_psn() const;
  std::uint32_t next_receive_psn() const;
  std::uint32_t send_sequence() const;     ///< SSN: send requests begun
  std::uint32_t receive_sequence() const;  ///< MSN: messages received
  std::uint8_t retries_left() const;
  std::uint8_t rnr_retries_left() const;

  /// State, peer, PSNs of both directions, and what is outstanding.
  void inspect(util::InspectNode& out) const;

 private:
  friend class Engine;
  friend class FrameDispatcher;
  friend class QpScheduler;
  friend class Transport;
  friend class Requester;
  friend class Responder;
  friend class DcTargets;
  friend class TimerQueue;
  friend class QpList;
  friend class CongestionControl;

  /// Replaces the attributes in `taken` by those of `from`. Also takes those that no document
  /// lists: PD, reserved LKey, source QPN of the DETH.
  void take(const QpAttributes& from, QpAttributeSet taken);
  /// Call after the path has changed.
  void invalidate_headers() { path_header_.generation = accepted_.generation = 0; }
  /// DC initiator: its peer is now this target.
  void connect_to(const UdDestination& target);
  /// True if the QP accepts a packet with this P_Key.
  bool takes(std::uint16_t pkey) const { return spec::infiniband::may_talk(pkey, pkey_); }

  Engine& engine_;
  Qpn qpn_;
  std::uint16_t pkey_ = 0;
  std::uint16_t flow_ = 0;  ///< 1 + index in CongestionControl; 0: the QP is not rate-limited
  const ServiceRules& service_;
  QpState state_ = QpState::kReset;
  bool communication_established_ = false;
  bool last_wqe_reached_ = false;
  QpAttributes attributes_;
  QpOptions options_;
  WorkQueues& queues_;
  PostedRequests* requests_;  ///< never null
  QpCounters* counters_;      ///< never null
  std::unique_ptr<Requester> requester_;
  std::unique_ptr<Responder> responder_;
  Timers timers_;
  std::array<QpLink, kQueues> links_;
  std::uint64_t awaited_frame_ = 0;  ///< in Queue::kUnreleased: the frame whose release it awaits
  CachedHeader<wire::IbHeader> path_header_;     ///< of sent packets, if the QP is connected
  CachedHeader<wire::AcceptedHeader> accepted_;  ///< of the last packet for this QP
};

}  // namespace softhca::rdma
