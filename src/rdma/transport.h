// The InfiniBand transport: the engine of one HCA port, on RoCE or an InfiniBand link.
//
// It owns no socket, thread or clock. Packets, doorbells and time come in. Packets go out through
// fabric::Port::transmit(), completions through the WorkQueues of each QP. The name of a method
// shows its kind:
//
//   getters           gids(), find(), counters(): no side effects
//   handle_*          something has arrived: handle_frame()
//   verbs             requests of the device: create_qp(), modify(), doorbell_send()
//   run()             does a bounded amount of due work, returns when to call it next
//
// After any handle_* or verb the owner calls run() before it sleeps. Time never goes backwards.
// Every call may call back WorkQueues, except create_qp(), find() and the tables. A callback must
// not call the transport, but may use the key table (see WorkQueues::execute_local).
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "fabric/port.h"
#include "rdma/congestion.h"
#include "rdma/counters.h"
#include "rdma/dc_target.h"
#include "rdma/memory_key.h"
#include "rdma/port_addresses.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"
#include "util/clock.h"
#include "util/notes.h"
#include "util/work_budget.h"

namespace softhca::rdma {

class Engine;

class Transport {
 public:
  /// `keys` and `notes` belong to the device. It uses the same keys for its other memory accesses,
  /// and `notes` carries its name.
  Transport(fabric::Port& port, KeyTable& keys, util::Notes& notes, const PortOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Tables -------------------------------------------------------------------------------------

  GidTable& gids();
  /// Sets LID and virtual lanes of an InfiniBand link.
  void set_link_attributes(const LinkAttributes& attributes);
  const LinkAttributes& link_attributes() const;

  /// IBTA 10.9: sets the P_Keys by index. Initially: the default P_Key. Call refresh_pkey() for
  /// each QP that exists: there may be too many for one turn.
  void set_pkeys(std::span<const std::uint16_t> pkeys);
  /// Gives a QP the P_Key that is now at its index.
  void refresh_pkey(QueuePair& qp);

  // Queue pairs --------------------------------------------------------------------------------

  /// Creates a QP in RESET. `attributes` needs the PD only. `queues` outlives the QP. @pre no QP
  /// has this number
  QueuePair& create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                       const QpOptions& options, WorkQueues& queues);
  /// Destroys the QP without notifying the peer, and drops its requests in flight.
  void destroy_qp(QueuePair& qp);
  /// Null if no QP has this number.
  QueuePair* find(Qpn qpn) const;
  /// All QPs, by number.
  std::vector<QueuePair*> queue_pairs() const;
  /// Detaches the QP from its groups, possibly many, until `work` is spent. True when it is in
  /// none.
  bool leave_groups(QueuePair& qp, util::WorkBudget& work);
  /// Tears down all groups, shared receive queues and DC targets until `work` is spent, before all
  /// QPs are destroyed. True when none is left.
  bool dismantle_tables(util::WorkBudget& work);

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
  void set_gsi(std::optional<Qpn> qpn);
  /// Multicast: `qpn` (UD) receives packets to `gid`, until it is detached or destroyed. False if
  /// it is attached already, or there is no room (PortOptions). @pre the QP exists
  bool attach(Qpn qpn, const Gid& gid);
  /// The QPs of a group, in the order in which they were attached.
  std::span<const Qpn> group(const Gid& gid) const;
  /// Number of groups with a QP.
  std::size_t group_count() const;
  bool detach(Qpn qpn, const Gid& gid);

  // Shared receive queues of XRC ---------------------------------------------------------------

  /// Requests to XRC targets of its domain may use this SRQ from now on. @pre no SRQ has this
  /// number
  void add_xrc_srq(XrcSrqn number, const XrcSrq& srq);
  /// No request of the SRQ completes after this.
  void remove_xrc_srq(XrcSrqn number);

  // Targets of DC ------------------------------------------------------------------------------

  /// Takes requests for `qpn` from now on. `queues` outlives the target; it supplies receives and
  /// takes their completions for all connections. @pre no QP or target has this number
  void add_dc_target(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues);
  /// Takes no more requests. run() sends the pending responses; then connections end until `work`
  /// is spent. Call again until it returns true: nothing is left.
  bool drain_dc_target(Qpn qpn, util::WorkBudget& work);
  /// @pre the target is drained
  void remove_dc_target(Qpn qpn);
  /// Null if no target has this number.
  const DcTarget* find_dc_target(Qpn qpn) const;
  /// Like resume(), for the one connection of the target that waits. The device answers
  /// FaultAnswer::kBusy to a second fault meanwhile.
  bool resume_dc_target(Qpn qpn, bool failed);

  // The device's events ------------------------------------------------------------------------

  /// The send queue may have new requests.
  void doorbell_send(QueuePair& qp);
  /// The receive queue may have new requests. Needed only if qp.flushes_receives(): otherwise the
  /// transport fetches one when a packet needs it.
  void notice_receive(QueuePair& qp);
  /// Counts only every `timeouts`-th ACK timeout of a QP as a retry, from the next one on: software
  /// peers on a crowded CPU answer late.
  void set_ack_patience(unsigned timeouts);
  /// Takes the QP to ERR: the device found it broken (CQ overrun, lost queue memory).
  void fail(QueuePair& qp, QpEvent event, Reason reason);

  /// The page that this side of the QP waits for (WorkQueues::open_fault) is present. `failed`: it
  /// cannot be made present, and the waiting operation fails. False if the side does not wait.
  bool resume(QueuePair& qp, FaultSide side, bool failed);

  /// False if the frame is not for a QP of this port; on Ethernet it may belong to another
  /// consumer. True if it was taken, or dropped and counted.
  bool handle_frame(const wire::Frame& frame, util::Time now);

  /// Sends due packets and expires timers until `work` is spent; that pays for packets and for
  /// their handling at the receiver. Returns when to call again: `now` if work is left, kNever if
  /// nothing is pending.
  util::Time run(util::Time now, util::WorkBudget& work);
  /// Notes the time without a run(): for verbs, while nothing can be sent.
  void note_time(util::Time now);
  /// Serves `qp` alone, while nothing can be sent. @pre it sends no packets
  void run_only(QueuePair& qp, util::WorkBudget& work);

  // Inspection ---------------------------------------------------------------------------------

  const PortCounters& counters() const;
  /// The device may change its parameters and counters.
  CongestionControl& congestion();
  /// All QPs as text.
  std::string inspect() const;

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace softhca::rdma
