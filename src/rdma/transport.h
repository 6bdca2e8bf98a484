// The InfiniBand transport: the engine of one HCA port, on RoCE or an InfiniBand link.
//
// It owns no socket, thread or clock. Packets, doorbells and time come in. Packets go out through
// fabric::Port::transmit(), completions through the WorkQueues of each QP. The name of a method
// shows its kind:
//
//   getters           gids(), groups(), find(), counters(): no side effects
//   handle_*          something has arrived: handle_frame()
//   verbs             requests of the device: create_qp(), modify(), doorbell_send()
//   run()             does a bounded amount of due work, returns when to call it next
//
// After any handle_* or verb the owner calls run() before it sleeps. Time never goes backwards.
// Every call may call back WorkQueues, those of dc_targets() included. Exceptions: create_qp(),
// find(), and changes of GIDs, P_Keys, groups and XRC SRQs. A callback must not call the transport,
// but may use the key table (see WorkQueues::execute_local).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "fabric/port.h"
#include "rdma/engine.h"
#include "rdma/frame_dispatcher.h"
#include "rdma/multicast_groups.h"
#include "rdma/qp_scheduler.h"
#include "util/clock.h"
#include "util/notes.h"
#include "util/work_budget.h"

namespace softhca::rdma {

class Transport {
 public:
  /// `keys` and `notes` belong to the device. It uses the same keys for its other memory accesses,
  /// and `notes` carries its name.
  Transport(fabric::Port& port, KeyTable& keys, util::Notes& notes, const PortOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Tables -------------------------------------------------------------------------------------

  GidTable& gids() { return engine_.addresses.gids; }
  /// Sets LID and virtual lanes of an InfiniBand link.
  void set_link_attributes(const LinkAttributes& attributes) {
    engine_.addresses.set_attributes(attributes);
  }
  /// IBTA 10.9: sets the P_Keys by index. Initially: the default P_Key. Call
  /// QueuePair::refresh_pkey() for each QP that exists: there may be too many for one turn.
  void set_pkeys(std::span<const std::uint16_t> pkeys);
  /// The multicast groups of UD QPs. A QP that is attached must exist; it gets the packets to the
  /// group until it is detached or destroyed.
  MulticastGroups& groups() { return groups_; }
  /// Shared receive queues that requests to XRC targets may use.
  XrcSrqs& xrc_srqs() { return engine_.xrc_srqs; }
  /// Targets of dynamic connections. Their numbers are not those of QPs.
  DcTargets& dc_targets() { return engine_.dc_targets; }
  /// Tears down groups, shared receive queues and DC targets until `work` is spent, before all QPs
  /// are destroyed. True when none is left.
  bool dismantle_tables(util::WorkBudget& work);

  // Queue pairs --------------------------------------------------------------------------------

  /// Creates a QP in RESET. `attributes` needs the PD only. `queues` outlives the QP. @pre no QP
  /// has this number
  QueuePair& create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                       const QpOptions& options, WorkQueues& queues);
  /// Destroys the QP without notifying the peer, and drops its requests in flight.
  void destroy_qp(QueuePair& qp);
  /// Null if no QP has this number.
  QueuePair* find(Qpn qpn) const { return engine_.qps.find(qpn); }
  /// All QPs, by number.
  std::vector<QueuePair*> queue_pairs() const { return engine_.qps.all(); }

  /// MODIFY QP. A refusal changes nothing. Takes the attributes that the transition requires, and
  /// of the optional ones those in `given`; all others stay unchanged
  /// (spec/infiniband/qp_states.h).
  ///
  ///   To RESET: drops posted requests and those in flight without completions.
  ///   To ERR: run() flushes posted requests.
  ///   RTS to SQD: QpEvent::kSqDrained follows.
  [[nodiscard]] tl::expected<void, Reason> modify(QueuePair& qp, QpState to,
                                                  const QpAttributes& attributes,
                                                  QpAttributeSet given = QpAttributeSet::all());

  /// Sets the QP that receives packets to QPN 1. Nothing: none.
  void set_gsi(std::optional<Qpn> qpn) { engine_.gsi = qpn; }

  // The device's events ------------------------------------------------------------------------

  /// The send queue may have new requests.
  void doorbell_send(QueuePair& qp);
  /// The receive queue may have new requests. Needed only if qp.flushes_receives(): otherwise the
  /// transport fetches one when a packet needs it.
  void notice_receive(QueuePair& qp);
  /// Counts only every `timeouts`-th ACK timeout of a QP as a retry, from the next one on: software
  /// peers on a crowded CPU answer late.
  void set_ack_patience(unsigned timeouts) { engine_.ack_patience = timeouts; }
  /// Takes the QP to ERR: the device found it broken (CQ overrun, lost queue memory).
  void fail(QueuePair& qp, QpEvent event, Reason reason);

  /// The page that this side of the QP waits for (WorkQueues::open_fault) is present. `failed`: it
  /// cannot be made present, and the waiting operation fails. False if the side does not wait.
  bool resume(QueuePair& qp, FaultSide side, bool failed);

  /// False if the frame is not for a QP of this port; on Ethernet it may belong to another
  /// consumer. True if it was taken, or dropped and counted.
  bool handle_frame(const wire::Frame& frame, util::Time now) {
    return dispatcher_.handle_frame(frame, now);
  }

  /// Sends due packets and expires timers until `work` is spent; that pays for packets and for
  /// their handling at the receiver. Returns when to call again: `now` if work is left, kNever if
  /// nothing is pending.
  util::Time run(util::Time now, util::WorkBudget& work) { return scheduler_.run(now, work); }
  /// Notes the time without a run(): for verbs, while nothing can be sent.
  void note_time(util::Time now) { engine_.now = now; }
  /// Serves `qp` alone, while nothing can be sent. @pre it sends no packets
  void run_only(QueuePair& qp, util::WorkBudget& work) { scheduler_.run_only(qp, work); }

  // Inspection ---------------------------------------------------------------------------------

  const PortCounters& counters() const { return engine_.counters; }
  /// The device may change its parameters and counters.
  CongestionControl& congestion() { return engine_.congestion; }
  /// All QPs as text.
  std::string inspect() const;

 private:
  Engine engine_;
  MulticastGroups groups_;
  FrameDispatcher dispatcher_;
  QpScheduler scheduler_;
};

}  // namespace softhca::rdma
