// What the parts of the transport share. Internal: devices see transport.h.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fabric/port.h"
#include "rdma/congestion.h"
#include "rdma/counters.h"
#include "rdma/dc_targets.h"
#include "rdma/memory_key.h"
#include "rdma/multicast_groups.h"
#include "rdma/port_addresses.h"
#include "rdma/qp_list_inl.h"
#include "rdma/qp_table.h"
#include "rdma/queue_pair.h"
#include "rdma/timers_inl.h"
#include "rdma/work_queues.h"
#include "util/budget.h"
#include "util/notes.h"
#include "util/work_budget.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

struct LentRings;

class Engine {
 public:
  /// Packets that one QP may send before the next QP has its turn.
  static constexpr unsigned kQuantum = 128;
  /// What a packet costs, its sender and its receiver together, besides its bytes; and as much for
  /// a request that is flushed, or a timer.
  static constexpr unsigned kStepWork = 600;
  static constexpr unsigned kBytesPerUnit = 16;

  Engine(fabric::Port& the_port, KeyTable& the_keys, util::Notes& the_notes,
         const PortOptions& options);
  ~Engine();

  // For the verbs and events of Transport --------------------------------------------------------

  bool handle_frame(const wire::Frame& frame, util::Time time);
  util::Time run(util::Time time, util::WorkBudget& work) {
    now = time;
    const bool idle = ready.empty() && unreleased.empty() && !timers.due(now);
    return idle ? timers.next() : run_due(work);
  }
  void set_state(QueuePair& qp, QpState state);
  void forget(QueuePair& qp);

  // For requesters and responders ----------------------------------------------------------------

  /// run() will serve the QP.
  void mark_ready(QueuePair& qp) { ready.push_back(qp); }
  /// Whether frame `number` and those before it refer to no memory any more.
  bool released(std::uint64_t number) {
    return number <= released_ || number <= (released_ = port.released());
  }
  /// run() will serve the QP when frame `number` is released.
  void wait_for_release(QueuePair& qp, std::uint64_t number);
  /// QP to ERR: run() flushes it.
  void to_error(QueuePair& qp);
  void event(QueuePair& qp, QpEvent event, Reason reason);
  /// `detail`: more words for the log.
  void drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail = {},
            unsigned packets = 1);
  void note(const QueuePair& qp, std::string_view what, Reason reason);
  /// The headers of a connected QP's path; null if the port has no address for it.
  const wire::IbHeader* path_header(QueuePair& qp) {
    return qp.header_generation_ == addresses.generation() ? &qp.header_ : make_path_header(qp);
  }
  /// Packets that may travel as one frame.
  unsigned train_max() const { return port.takes_trains() ? kQuantum : 1; }
  /// For a new packet, to be begun by IbHeader::begin() and sent by transmit().
  wire::Frame& new_frame() { return port.draft(); }
  /// Sends new_frame(). Returns its number.
  std::uint64_t transmit(const wire::Frame& frame) {
    counters.tx_packets += frame.packets();
    counters.tx_bytes += frame.size_of_all();
    return last_frame = port.transmit(frame);
  }
  /// Whether data were moved. So they are in spite of signature errors, of which the device is
  /// told. `sends`: by the QP's send queue.
  bool moved(QueuePair& qp, Reason fault, bool sends) {
    return fault == Reason::kNone || tell_signature_errors(qp, fault, sends);
  }
  /// What QPs have while they are at work.
  LentRings& lent_rings() { return *rings; }
  /// Rings of requests were lent or given back.
  void note_rings();
  bool is_gsi(const QueuePair& qp) const { return gsi && *gsi == qp.qpn(); }
  /// Of the port's table; beyond its end one that is invalid.
  std::uint16_t pkey(std::size_t index) const { return index < pkeys_.size() ? pkeys_[index] : 0; }
  void set_pkeys(std::span<const std::uint16_t> pkeys);

  fabric::Port& port;
  KeyTable& keys;
  XrcSrqs xrc_srqs;
  util::Notes& notes;
  PortAddresses addresses;
  PortCounters counters;
  CongestionControl congestion;
  MulticastGroups groups;
  /// Send requests that QPs may have in flight besides their first. It outlives them.
  util::Budget requests;
  /// Outlives the QPs, and not the budget.
  std::unique_ptr<LentRings> rings;
  QpTable qps;
  DcTargets dc_targets;
  const util::Duration ack_timeout_min;  ///< PortOptions
  unsigned ack_patience = 1;             ///< Transport::set_ack_patience
  TimerQueue timers;
  QpList ready{Queue::kReady};
  QpList unreleased{Queue::kUnreleased};
  std::uint64_t last_frame = 0;  ///< number of the last packet
  std::optional<Qpn> gsi;
  util::Time now{};

 private:
  [[gnu::noinline]] bool tell_signature_errors(QueuePair& qp, Reason fault, bool sends);
  QueuePair* find_by_header(const wire::Frame& frame) const;
  void remember_header(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& packet);
  bool handle_stranger(const wire::Frame& frame);
  bool handle_multicast(const wire::Frame& frame, const wire::IbPacket& packet);
  bool take_at_once(QueuePair& qp, const wire::TransportHeaders& headers,
                    const wire::Frame& arrived);
  void deliver_all(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& packet);
  void deliver_train(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& first);
  void deliver(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& packet);
  unsigned deliver_middles(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& packet,
                           unsigned count);
  void refuse(QueuePair& qp, const wire::IbPacket& packet);
  bool admits(const QueuePair& qp, const wire::IbPacket& packet) const;
  const wire::IbHeader* make_path_header(QueuePair& qp);
  util::Time run_due(util::WorkBudget& work);
  void take_released();

  std::vector<std::uint16_t> pkeys_{spec::infiniband::kDefaultPkey};
  bool wants_rings_ = false;    ///< QPs that have no request in flight are to give theirs back
  std::uint64_t released_ = 0;  ///< of the port's frames, as last asked

  unsigned serve(QueuePair& qp, unsigned quota);
  unsigned serve_plain(QueuePair& qp, unsigned quota);
  unsigned serve_slow(QueuePair& qp, unsigned quota);
  void notice_mark(const QueuePair& qp, const wire::IbPacket& packet);
  void handle_cnp(QueuePair& qp, const wire::IbPacket& packet);
  unsigned serve_in_any_state(QueuePair& qp, unsigned quota);
  static unsigned steps_for(std::int64_t work);
  std::int64_t expire_timers(std::int64_t left);
  void expire(QueuePair& qp);
  void report(QueuePair& qp);
};

}  // namespace softhca::rdma
