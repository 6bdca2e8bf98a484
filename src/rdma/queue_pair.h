// A queue pair as the transport sees it: attributes and state.
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
#include "wire/ib_header.h"
#include "wire/seen_header.h"

namespace softhca::rdma {

/// What CREATE and MODIFY set (names of IBTA 11.2.4.2).
struct QpAttributes {
  Pd pd;
  Path path;  ///< to the peer; UD: only its own source counts, as the address that is listened to
  std::uint32_t path_mtu = 1024;  ///< bytes; UD: the port's
  /// Bytes of a message that the QP sends, and of a READ or WRITE of its peer. Goes with the path
  /// MTU.
  std::uint64_t message_max = spec::infiniband::kMaxMessageBytes;
  Qpn remote_qpn;
  std::uint32_t qkey = 0;
  std::uint16_t pkey_index = 0;  ///< of Transport::set_pkeys()
  std::uint32_t rq_psn = 0;      ///< next expected
  std::uint32_t sq_psn = 0;      ///< next to send
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;            ///< 7: for ever
  std::uint8_t ack_timeout = 14;         ///< 4.096 us * 2^n; 0: never
  std::uint8_t min_rnr_timer = 0;        ///< code of the RNR NAK timer field
  std::uint32_t max_rd_atomic = 1;       ///< outstanding READs and atomics as requester
  std::uint32_t max_dest_rd_atomic = 1;  ///< as responder
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;
  bool reserved_lkey = false;          ///< may use the reserved LKey
  std::optional<Qpn> deth_source_qpn;  ///< UD: source QPN in the DETH; nothing: the QP's own
};

/// Data that a device takes with a completion, so that they are not placed in the buffers of the
/// request: all of a message, if it is no longer than so many bytes. At most kCompletionDataMax.
struct CompletionData {
  std::uint32_t of_sends = 0;  ///< that the QP receives; UD: of none
  std::uint32_t of_reads = 0;  ///< that the QP has sent, if they are signaled
};
inline constexpr std::uint32_t kCompletionDataMax = 64;

/// What stays as it is from CREATE on.
struct QpOptions {
  bool has_send_queue = true;
  bool has_receive_queue = true;          ///< of its own
  bool uses_srq = false;                  ///< receives come from a shared receive queue
  XrcDomain xrc_domain{};                 ///< XRC target: whose SRQs requests may name
  bool block_multicast_loopback = false;  ///< UD: not what this port's own GIDs sent to a group
  /// UD: the first 40 bytes of a receive are for the GRH, or what stands for it.
  bool datagram_header = true;
  CompletionData completion_data{};
  /// Results of atomics of 8 bytes are written as they came, the highest byte first.
  bool big_endian_atomics = false;
  QpCounters* counters = nullptr;  ///< the device's set to count in; null: none
};

class Engine;
class Requester;
class Responder;
class WorkQueues;

class QueuePair {
 public:
  QueuePair(Engine& engine, Qpn qpn, QpType type, const QpAttributes& attributes,
            const QpOptions& options, WorkQueues& queues);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  Qpn qpn() const { return qpn_; }
  QpType type() const { return service_.type; }
  /// What QPs of this type may do.
  const ServiceRules& service() const { return service_; }
  QpState state() const { return state_; }
  const QpAttributes& attributes() const { return attributes_; }
  /// That its packets have: what the port's table now holds at its index.
  std::uint16_t pkey() const { return pkey_; }
  const QpOptions& options() const { return options_; }
  void set_counters(QpCounters* counters);
  /// From the next message on.
  void set_completion_data(const CompletionData& data) { options_.completion_data = data; }
  /// In SQD, and all that was begun is complete.
  bool drained() const;
  /// Posted receives end in kFlushed, also later ones: the device tells of them by
  /// notice_receive().
  bool flushes_receives() const;

  // What QUERY QP shows.
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
  friend class Transport;
  friend class Requester;
  friend class Responder;
  friend class DcTargets;
  friend class TimerQueue;
  friend class QpList;
  friend class CongestionControl;

  /// Replaces the attributes of `taken` by those of `from`, and what no document names: PD,
  /// reserved LKey, source QPN of the DETH.
  void take(const QpAttributes& from, QpAttributeSet taken);
  /// All attributes, or the port's table of P_Keys, may have changed.
  void refresh_pkey();
  /// Whether it takes a packet with this P_Key.
  bool takes(std::uint16_t pkey) const { return spec::infiniband::may_talk(pkey, pkey_); }

  Engine& engine_;
  Qpn qpn_;
  std::uint16_t pkey_ = 0;
  std::uint16_t flow_ = 0;  ///< 1 + its place in CongestionControl; 0: it is not slow
  const ServiceRules& service_;
  QpState state_ = QpState::kReset;
  bool communication_established_ = false;
  bool last_wqe_reached_ = false;
  QpAttributes attributes_;
  QpOptions options_;
  WorkQueues& queues_;
  QpCounters* counters_;  ///< never null
  std::unique_ptr<Requester> requester_;
  std::unique_ptr<Responder> responder_;
  Timers timers_;
  std::array<QpLink, kQueues> links_;
  std::uint64_t awaited_frame_ = 0;      ///< in Queue::kUnreleased: the frame that it waits for
  wire::IbHeader header_;                ///< of the path
  std::uint32_t header_generation_ = 0;  ///< of the addresses when header_ was made; 0: not made
  wire::SeenHeader seen_;                ///< of a packet that was for this QP, from its peer
  std::uint32_t seen_generation_ = 0;    ///< of the addresses then; 0: none was seen
};

}  // namespace softhca::rdma
