// State and functions that the parts of the transport share. Internal: devices use transport.h.
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
  /// Packets that one QP may send before the next QP gets its turn.
  static constexpr unsigned kQuantum = 128;
  /// Work of one packet, sender and receiver together, besides its bytes. A flushed request or an
  /// expired timer costs the same.
  static constexpr unsigned kStepWork = 600;
  static constexpr unsigned kBytesPerUnit = 16;

  Engine(fabric::Port& the_port, KeyTable& the_keys, util::Notes& the_notes,
         const PortOptions& options);
  ~Engine();

  // Verbs and events of Transport ----------------------------------------------------------------

  bool handle_frame(const wire::Frame& frame, util::Time time);
  util::Time run(util::Time time, util::WorkBudget& work) {
    now = time;
    const bool idle = ready.empty() && unreleased.empty() && !timers.due(now);
    return idle ? timers.next() : run_due(work);
  }
  /// The QP stays in its lists: run() finds nothing left to do.
  void run_only(QueuePair& qp, util::WorkBudget& work) {
    const auto used = serve_plain(qp, kQuantum);
    work.charge(std::int64_t{std::max(1u, used)} * kStepWork + keys.work().drain());
  }
  void set_state(QueuePair& qp, QpState state);
  void forget(QueuePair& qp);

  // For requesters and responders ----------------------------------------------------------------

  /// run() will serve the QP.
  void mark_ready(QueuePair& qp) { ready.push_back(qp); }
  /// True if frame `number` and all before it no longer refer to memory.
  bool released(std::uint64_t number) {
    return number <= released_ || number <= (released_ = port.released());
  }
  /// run() will serve the QP when frame `number` is released.
  void wait_for_release(QueuePair& qp, std::uint64_t number);
  /// Takes the QP to ERR; run() flushes it.
  void to_error(QueuePair& qp);
  void event(QueuePair& qp, QpEvent event, Reason reason);
  /// `detail`: more text for the log.
  void drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail = {},
            unsigned packets = 1);
  void note(const QueuePair& qp, std::string_view what, Reason reason);
  /// The headers for a connected QP's path. Null if the port has no source address for it.
  const wire::IbHeader* path_header(QueuePair& qp) {
    return qp.header_generation_ == addresses.generation() ? &qp.header_ : make_path_header(qp);
  }
  /// Most packets that may travel as one frame.
  unsigned train_max() const { return port.takes_trains() ? kQuantum : 1; }
  /// A new frame. Begin it with IbHeader::begin(), send it with transmit().
  wire::Frame& new_frame() { return port.draft(); }
  /// Sends new_frame(). Returns its number.
  std::uint64_t transmit(const wire::Frame& frame) {
    counters.tx_packets += frame.packets();
    counters.tx_bytes += frame.size_of_all();
    return last_frame = port.transmit(frame);
  }
  /// True if the data were copied. A signature mismatch still copies, and is reported to the
  /// device. `sends`: the data moved for a request of the QP's send queue.
  bool moved(QueuePair& qp, Reason fault, bool sends) {
    return fault == Reason::kNone || tell_signature_errors(qp, fault, sends);
  }
  /// The ring pools of the QPs.
  LentRings& lent_rings() { return *rings; }
  /// Call after a ring was taken from a pool or given back.
  void note_rings();
  bool is_gsi(const QueuePair& qp) const { return gsi && *gsi == qp.qpn(); }
  /// P_Key of the port's table; beyond its end, an invalid one.
  std::uint16_t pkey(std::size_t index) const { return index < pkeys_.size() ? pkeys_[index] : 0; }
  void set_pkeys(std::span<const std::uint16_t> pkeys);
  /// True if some P_Key of the port's table may talk with that one.
  bool has_pkey_for(std::uint16_t pkey) const {
    return std::ranges::any_of(
        pkeys_, [pkey](std::uint16_t own) { return spec::infiniband::may_talk(pkey, own); });
  }

  fabric::Port& port;
  KeyTable& keys;
  XrcSrqs xrc_srqs;
  util::Notes& notes;
  PortAddresses addresses;
  PortCounters counters;
  CongestionControl congestion;
  MulticastGroups groups;
  /// Send requests that QPs may have in flight besides their first. Outlives the QPs.
  util::Budget requests;
  /// Outlives the QPs, and is destroyed before the budget.
  std::unique_ptr<LentRings> rings;
  QpTable qps;
  DcTargets dc_targets;
  const util::Duration ack_timeout_min;  ///< see PortOptions
  unsigned ack_patience = 1;             ///< see Transport::set_ack_patience()
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
  bool wants_rings_ = false;    ///< QPs without a request in flight are to release their rings
  std::uint64_t released_ = 0;  ///< result of the last port.released()

  unsigned serve(QueuePair& qp, unsigned quota);
  unsigned serve_plain(QueuePair& qp, unsigned quota);
  unsigned serve_slow(QueuePair& qp, unsigned quota);
  void notice_mark(const QueuePair& qp, const wire::IbPacket& packet);
  void handle_cnp(QueuePair& qp, const wire::IbPacket& packet);
  unsigned serve_in_any_state(QueuePair& qp, unsigned quota);
  /// Number of steps that `work` pays for, at least one.
  static unsigned steps_for(std::int64_t work) {
    const auto step = std::int64_t{kStepWork};
    return static_cast<unsigned>(std::max<std::int64_t>((work + step - 1) / step, 1));
  }
  /// True if a QP whose turn has taken `used` steps of `quota` may do more.
  bool goes_on(unsigned used, unsigned quota) const {
    return used < quota && !keys.work().over_budget();
  }
  std::int64_t expire_timers(std::int64_t left);
  void expire(QueuePair& qp);
  void report(QueuePair& qp);
};

}  // namespace softhca::rdma
