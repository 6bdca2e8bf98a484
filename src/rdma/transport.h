// The InfiniBand transport: the engine of one HCA port, on RoCE or an InfiniBand link.
//
// It owns no socket, thread or clock. Packets, doorbells and time come in; packets go out through
// fabric::Port::transmit and completions through the WorkQueues of each QP. Which kind a method is,
// its name says:
//
//   getters           gids(), find(), counters(): look, change nothing
//   handle_*          something has arrived: handle_frame()
//   verbs             the device wants something: create_qp(), modify(), doorbell_send()
//   run()             does what is due, a bounded amount, and says when it must be called next
//
// After any handle_* or verb the owner calls run() before it sleeps. Time never goes backwards.
// Every call may call WorkQueues back, except create_qp(), find() and the tables; these must not
// call the transport from there (but its key table, see WorkQueues::execute_local).
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
  /// `keys` are the device's: what else it does with memory goes by the same keys. So are `notes`,
  /// which name it.
  Transport(fabric::Port& port, KeyTable& keys, util::Notes& notes, const PortOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Tables -------------------------------------------------------------------------------------

  GidTable& gids();
  /// LID and virtual lanes of an InfiniBand link.
  void set_link_attributes(const LinkAttributes& attributes);
  const LinkAttributes& link_attributes() const;

  /// IBTA 10.9: P_Keys by index. Queue pairs go by the new ones at once. Before: the default one.
  void set_pkeys(std::span<const std::uint16_t> pkeys);

  // Queue pairs --------------------------------------------------------------------------------

  /// In state RESET. `attributes` needs the PD only. `queues` outlives the QP.
  /// @pre no QP has this number
  QueuePair& create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                       const QpOptions& options, WorkQueues& queues);
  /// Forgets the QP silently, with what it has in flight.
  void destroy_qp(QueuePair& qp);
  /// Null if there is none.
  QueuePair* find(Qpn qpn) const;
  /// All QPs, by number.
  std::vector<QueuePair*> queue_pairs() const;
  /// Detaches the QP from its groups, which may be many, until `work` is spent. True: from all.
  bool leave_groups(QueuePair& qp, util::WorkBudget& work);
  /// Forgets all groups, shared receive queues and DC targets, until `work` is spent, before all
  /// QPs are destroyed. True: none is left.
  bool dismantle_tables(util::WorkBudget& work);

  /// MODIFY QP; if it is refused nothing has changed. Of `attributes` it takes those that the
  /// transition requires, and of those that are optional there the ones that `given` names; all
  /// others stay as they are (the table is in spec/infiniband/qp_states.h). To RESET: what is
  /// posted and in flight is dropped without a completion. To ERR: run() flushes what is posted.
  /// RTS to SQD: QpEvent::kSqDrained follows.
  [[nodiscard]] tl::expected<void, Reason> modify(QueuePair& qp, QpState to,
                                                  const QpAttributes& attributes,
                                                  QpAttributeSet given = QpAttributeSet::all());

  /// The QP that gets what is sent to QPN 1. Nothing: none.
  void set_gsi(std::optional<Qpn> qpn);
  /// Multicast: `qpn` (UD) gets what is sent to `gid`, until it is detached or destroyed. False if
  /// it is attached already, or there is no room (PortOptions). @pre the QP exists
  bool attach(Qpn qpn, const Gid& gid);
  /// The QPs that are attached to a group, in the order in which they came.
  std::span<const Qpn> group(const Gid& gid) const;
  /// How many groups have a QP.
  std::size_t group_count() const;
  bool detach(Qpn qpn, const Gid& gid);

  // Shared receive queues of XRC ---------------------------------------------------------------

  /// From now on requests to targets of its domain may name it. @pre no SRQ has this number
  void add_xrc_srq(XrcSrqn number, const XrcSrq& srq);
  /// No completion comes of its requests any more.
  void remove_xrc_srq(XrcSrqn number);

  // Targets of DC ------------------------------------------------------------------------------

  /// From now on takes requests for `qpn`. `queues` outlives it; it is asked for receives and told
  /// of their completions, of all connections alike. @pre nobody has this number
  void add_dc_target(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues);
  /// It takes no more requests. What waits to be answered run() answers; then connections end,
  /// until `work` is spent. To be called again until it is true: nothing is left.
  bool drain_dc_target(Qpn qpn, util::WorkBudget& work);
  /// @pre it is drained
  void remove_dc_target(Qpn qpn);
  /// Null if there is none.
  const DcTarget* find_dc_target(Qpn qpn) const;
  /// As resume(), for the one connection of the target that waits: its device lets no other open a
  /// fault meanwhile (FaultAnswer::kBusy).
  bool resume_dc_target(Qpn qpn, bool failed);

  // The device's events ------------------------------------------------------------------------

  /// There may be new send requests.
  void doorbell_send(QueuePair& qp);
  /// There may be new receive requests. Needed only while qp.flushes_receives(): at other times the
  /// transport asks when a packet needs one.
  void notice_receive(QueuePair& qp);
  /// Of so many Local ACK Timeouts of a QP that end one counts, from the next on. For peers whose
  /// devices are programs, while many of these share a processor.
  void set_ack_patience(unsigned timeouts);
  /// The device found the QP broken (CQ overrun, lost queue memory): QP to ERR.
  void fail(QueuePair& qp, QpEvent event, Reason reason);

  /// The page is there that this side of the QP waits for (WorkQueues::open_fault); `failed`: it
  /// cannot be brought, and who waits fails. False: it waits for none.
  bool resume(QueuePair& qp, FaultSide side, bool failed);

  /// False: not for a QP here; on Ethernet, the frame may be somebody else's. True: taken, or
  /// dropped and counted.
  bool handle_frame(const wire::Frame& frame, util::Time now);

  /// Sends what is due and lets timers expire, until `work` is spent: it pays for the packets and
  /// for what their receiver does with them. Returns when to call again: `now` if work is left,
  /// kNever if nothing is under way.
  util::Time run(util::Time now, util::WorkBudget& work);

  // For people ---------------------------------------------------------------------------------

  const PortCounters& counters() const;
  /// Its parameters and counters are the device's to change.
  CongestionControl& congestion();
  /// All QPs as text.
  std::string inspect() const;

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace softhca::rdma
