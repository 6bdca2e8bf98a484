// The RDMA part of the device: QPs, SRQs, the RoCE address table, and the transport that serves
// them.
//
// It converts the driver's formats (QP contexts, WQEs, CQEs, doorbell records, events) to the terms
// of rdma::Transport, and back. The commands that create and change these objects are in
// *_commands.cc.
//
// Receive queues have no doorbell: software only writes a counter to memory (mlx5 driver interface
// 8.1). The device reads the counter when a packet needs a receive WQE. A QP that flushes its
// receive queue gets no packets, so run() polls the counters of such QPs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/base/timestamp.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/qp/completion_writer.h"
#include "connectx/qp/dcts.h"
#include "connectx/qp/page_faults.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/shared_receive_queues.h"
#include "connectx/qp/wqe_reader.h"
#include "connectx/queue/blue_flame.h"
#include "hca/failing_list.h"
#include "hca/flush_poller.h"
#include "hca/object_table.h"
#include "rdma/transport.h"
#include "util/clock.h"
#include "util/notes.h"
#include "util/trace.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class Rdma {
 public:
  struct Parts {
    const Limits& limits;
    const Model& model;
    Resources& resources;
    EventQueues& event_queues;
    CompletionQueues& completion_queues;
    MemoryKeys& memory_keys;
    fabric::Port& port;
    const BlueFlame& blue_flame;
    SharedDoorbells* shared_doorbells = nullptr;  ///< null: all doorbells are messages
    QueueMapper mapper;
    util::Notes& notes;
    util::Trace* trace = nullptr;
    util::Duration ack_timeout_min{0};  ///< rdma::PortOptions
  };

  explicit Rdma(const Parts& parts);
  ~Rdma();
  Rdma(const Rdma&) = delete;
  Rdma& operator=(const Rdma&) = delete;

  // Events of the device -----------------------------------------------------------------------

  /// The QP that a send doorbell on `page` names. Null if there is none, or it uses another page.
  QueuePair* find_by_doorbell(Qpn number, UarPage page) {
    auto* qp = find_qp(number);
    return qp != nullptr && qp->context().has_send_queue() && qp->context().uar_page() == page
               ? qp
               : nullptr;
  }
  /// Handles a send doorbell of the QP: there may be new send WQEs.
  void doorbell(QueuePair& qp);
  /// False if the frame is no RoCE packet for this device, so that Ethernet must take it. Call it
  /// only while the vport's roce_en is set.
  bool handle_frame(const wire::Frame& frame, util::Time now) {
    set_now(now);
    return transport_.handle_frame(frame, now);
  }
  /// Does the due work until `work` is spent. Returns when to call again: `now` if work is left.
  util::Time run(util::Time now, util::WorkBudget& work) {
    set_now(now);
    if (!failing_.empty()) fail_listed(work);
    if (now >= next_poll_) poll_watched(now, work);
    const auto next = transport_.run(now, work);
    if (!failing_.empty()) {
      fail_listed(work);
      return now;
    }
    return next < next_poll_ ? next : next_poll_;
  }
  /// A run() for turns in which nothing can be sent: it serves only the driver's UMR QPs, which
  /// have no peer.
  void run_key_changes(util::Time now, util::WorkBudget& work);

  // Objects ------------------------------------------------------------------------------------

  /// Called after a change of the fault rules.
  void follow_fault_rules();

  rdma::Transport& transport() { return transport_; }
  rdma::GidTable& gids() { return transport_.gids(); }
  const rdma::PortCounters& counters() const { return transport_.counters(); }

  /// True if the port has a QP1.
  bool has_gsi() const { return gsi_.has_value(); }
  /// Null if there is no such QP.
  QueuePair* find_qp(Qpn qpn) { return queue_pairs_.find(qpn); }
  const QueuePair* find_qp(Qpn qpn) const { return queue_pairs_.find(qpn); }
  const hca::ObjectTable<QueuePair, Qpn>& queue_pairs() const { return queue_pairs_; }
  Dcts& dcts() { return dcts_; }
  const Dcts& dcts() const { return dcts_; }
  SharedReceiveQueues& shared_queues() { return shared_queues_; }
  const SharedReceiveQueues& shared_queues() const { return shared_queues_; }

  /// Destroys objects until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

  // Verbs of the commands ----------------------------------------------------------------------

  struct NewQp {
    MappedQueue queue;
    QueuePair::Uses uses;
    bool atomics;             ///< the device has the capability
    bool big_endian_atomics;  ///< results are in wire order
  };
  /// Creates a QP in RESET. Null if there are too many.
  QueuePair* add_qp(util::View<spec::connectx::qpc> context, NewQp made);
  void remove_qp(QueuePair& qp);
  /// Sets the maximum number of QPs. @pre there are no more than that
  void set_max_qps(std::uint32_t max) { queue_pairs_.set_max(std::min(max, parts_.model.qps_max)); }
  /// Sets the QP's context, and passes its attributes to the transport. If the transport refuses
  /// them, nothing changes.
  tl::expected<void, rdma::Reason> modify_qp(QueuePair& qp, rdma::QpState to,
                                             util::View<spec::connectx::qpc> context,
                                             QueuePair::Uses uses);
  /// Moves the QP to RESET or ERR. These states need no context.
  tl::expected<void, rdma::Reason> move_qp(QueuePair& qp, rdma::QpState to);

  /// PAGE_FAULT_RESUME. False if this side of the QP waits for no page.
  bool resume(QueuePair& qp, rdma::FaultSide side, bool failed) {
    return transport_.resume(qp.rdma_qp(), side, failed);
  }

  // For QueuePair, called while the transport is processing ------------------------------------

  const Parts& parts() const { return parts_; }
  WqeReader& wqe_reader() { return wqe_reader_; }
  CompletionWriter& completion_writer() { return completion_writer_; }
  PageFaults& page_faults() { return page_faults_; }
  /// Notes that a QP must fail because a CQE could not be written. It fails later, because the
  /// transport is using it now.
  void fail_soon(QueuePair& qp);
  /// Polls for receives posted to a QP in ERR, which must be flushed.
  void watch(QueuePair& qp);

 private:
  /// Time is constant within a turn.
  void set_now(util::Time now) {
    if (now == now_) return;
    now_ = now;
    completion_writer_.set_time(device_ticks(now));
  }

  void unwatch(QueuePair& qp);
  void drop_held(const QueuePair& qp);
  void poll_watched(util::Time now, util::WorkBudget& work);
  void fail_listed(util::WorkBudget& work);

  Parts parts_;
  rdma::Transport transport_;
  SharedReceiveQueues shared_queues_;
  PageFaults page_faults_;
  CompletionWriter completion_writer_;
  WqeReader wqe_reader_;
  hca::ObjectTable<QueuePair, Qpn> queue_pairs_;
  Dcts dcts_;
  std::optional<Qpn> gsi_;
  std::vector<Qpn> umr_queues_;                  ///< QPs of the service REG_UMR
  util::Time now_{};                             ///< time of the last handle_frame() or run()
  hca::FailingList<Qpn, rdma::Reason> failing_;  ///< QPs whose CQ failed
  hca::FlushPoller<QueuePair> flush_poller_;
  util::Time next_poll_ = util::kNever;
};

}  // namespace softhca::connectx
