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
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/base/timestamp.h"
#include "connectx/command/command.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/qp/cqe.h"
#include "connectx/qp/dct.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/shared_receive_queue.h"
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

  /// The QP that a send doorbell names. Null unless the QP uses this doorbell page.
  QueuePair* find_listener(Qpn number, UarPage page) {
    auto* qp = find_qp(number);
    return qp != nullptr && qp->has_send_queue() && qp->uar_page() == page ? qp : nullptr;
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

  rdma::Transport& transport() { return transport_; }
  rdma::GidTable& gids() { return transport_.gids(); }
  const rdma::PortCounters& counters() const { return transport_.counters(); }

  /// True if the port has a QP1.
  bool has_gsi() const { return gsi_.has_value(); }
  /// Null if there is no such QP.
  QueuePair* find_qp(Qpn qpn) { return queue_pairs_.find(qpn); }
  const QueuePair* find_qp(Qpn qpn) const { return queue_pairs_.find(qpn); }
  const hca::ObjectTable<QueuePair, Qpn>& queue_pairs() const { return queue_pairs_; }
  const hca::ObjectTable<Dct, Qpn>& dcts() const { return dcts_; }
  const hca::ObjectTable<SharedReceiveQueue, Srqn>& shared_queues() const { return shared_queues_; }
  /// Null if there is no such RMP or SRQ.
  SharedReceiveQueue* find_srq(Srqn number) { return shared_queues_.find(number); }

  /// The model of the card.
  const Model& model() const { return parts_.model; }
  /// Maximum message length in bytes. Zero `log_msg_max`: that of the device.
  std::uint64_t message_max(std::uint32_t log_msg_max = 0) const {
    return Limits::count(log_msg_max == 0 ? parts_.limits.log_max_msg : log_msg_max);
  }

  /// Destroys objects until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

  // Verbs of the commands ----------------------------------------------------------------------

  /// Checks the references and limits of a QP context, and acquires uses of the objects: PD,
  /// doorbell page, CQs of existing queues, SRQ, port, depth of READs.
  tl::expected<QueuePair::Uses, Refusal> use_references(util::View<spec::connectx::qpc> context);

  /// The parts of a new QP.
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

  struct FaultPlace;  ///< the queue with the fault (page_faults.cc)
  /// PAGE_FAULT_RESUME. False if this side of the QP waits for no page.
  bool resume(QueuePair& qp, rdma::FaultSide side, bool failed) {
    return transport_.resume(qp.rdma_qp(), side, failed);
  }
  /// Resumes the DCT's connection that waits for a page.
  bool resume(Dct& dct, bool failed) { return transport_.resume_dc_target(dct.dctn(), failed); }

  /// Null if there are too many of its kind.
  SharedReceiveQueue* add_srq(SharedReceiveQueue::Attributes attributes);
  void remove_srq(SharedReceiveQueue& srq);
  /// Null if there is no such DCT.
  Dct* find_dct(Qpn number) { return dcts_.find(number); }
  /// Null if there are too many.
  Dct* add_dct(util::View<spec::connectx::dctc> context, Dct::Uses uses);
  /// Makes the DCT accept no more requests. Call it again in later turns until it returns true: all
  /// accepted requests are answered, and the event is posted.
  bool drain_dct(Dct& dct, util::WorkBudget& work);
  /// @pre the DCT is drained
  void remove_dct(Dct& dct);
  /// Number of requests with a wrong key.
  std::uint32_t key_violations(const Dct& dct) const;

  /// Arms the limit event. If fewer than `limit` WQEs are posted, posts it immediately.
  void arm_srq(SharedReceiveQueue& srq, std::uint16_t limit);

 private:
  friend class QueuePair;  // forwards the calls of the transport
  friend class Dct;        // forwards the calls of the transport

  /// Time is constant within a turn.
  void set_now(util::Time now) {
    if (now == now_) return;
    now_ = now;
    ticks_ = device_ticks(now);
  }

  rdma::Fetch fetch_send(QueuePair& qp, rdma::SendRequest& request);
  rdma::Fetch fetch_short_datagram(QueuePair& qp, std::uint64_t destination,
                                   std::uint32_t bytes_max, rdma::ShortDatagram& datagram);
  void restart_send(QueuePair& qp);
  rdma::LocalOutcome execute_local(QueuePair& qp, const rdma::SendRequest& request, bool again);
  rdma::Fetch fetch_receive(QueuePair& qp, rdma::ReceiveRequest& request, rdma::XrcSrqn srqn);
  bool fetch_receive_piece(QueuePair& qp, rdma::ReceivePiece& piece);
  void complete_send(QueuePair& qp, const rdma::SendCompletion& completion);
  void complete_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion);
  void complete_send_with(QueuePair& qp, const rdma::SendCompletion& completion,
                          std::span<const std::byte> data);
  void complete_receive_with(QueuePair& qp, const rdma::ReceiveCompletion& completion,
                             std::span<const std::byte> data);
  void handle_signature_error(QueuePair& qp, const rdma::SignatureError& error, bool sends,
                              rdma::XrcSrqn srqn);
  void handle_signature_error(Dct& dct, const rdma::SignatureError& error);
  bool write_signature_error(Cqn cqn, Qpn qpn, const rdma::SignatureError& error);
  void handle_event(QueuePair& qp, rdma::QpEvent event, rdma::Reason reason);
  rdma::FaultAnswer open_fault(QueuePair& qp, const rdma::PageFault& fault);
  rdma::FaultAnswer open_fault(Dct& dct, const rdma::PageFault& fault);
  rdma::FaultAnswer tell_fault(const rdma::PageFault& fault, const FaultPlace& place);
  void close_fault() { --open_faults_; }

  rdma::Fetch fetch_receive(Dct& dct, rdma::ReceiveRequest& request);
  void complete_receive(Dct& dct, const rdma::ReceiveCompletion& completion);
  void complete_receive_with(Dct& dct, const rdma::ReceiveCompletion& completion,
                             std::span<const std::byte> data);
  void handle_event(Dct& dct, rdma::QpEvent event, rdma::Reason reason);

  const std::byte* read_datagram_wqe(QueuePair& qp, std::size_t size);
  rdma::Fetch fetch_datagram(QueuePair& qp, std::uint32_t available, rdma::SendRequest& request);
  rdma::Fetch fetch_other_send(QueuePair& qp, std::uint32_t available, rdma::SendRequest& request);
  static bool reports_failure(QueuePair& qp, SendCookie cookie);
  rdma::Fetch flush_send(QueuePair& qp, rdma::SendRequest& request);
  rdma::Fetch flush_stale_send(QueuePair& qp, rdma::SendRequest& request);
  WqeFault read_send_wqe(QueuePair& qp, std::uint32_t available, SendWqeControl& control,
                         std::span<const std::byte>& wqe);
  rdma::Fetch fetch_shared(Srqn srqn, rdma::ReceiveRequest& request);
  static rdma::Fetch fetch_signed(QueuePair& qp, std::span<const std::byte> wqe,
                                  rdma::ReceiveRequest& request);
  void complete_xrc_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion);
  rdma::CompletionData completion_data(util::View<spec::connectx::qpc> context);
  rdma::CompletionData completion_data(util::View<spec::connectx::dctc> context);
  std::uint32_t data_in_cqes(Cqn cqn, bool asks_32, bool asks_64);
  bool write_cqe_with(Cqn cqn, Cqe& cqe, std::span<const std::byte> data, std::uint32_t room,
                      bool solicited);
  [[gnu::always_inline]] void write_cqe(QueuePair& qp, Cqn cqn, Cqe& cqe, bool solicited) {
    auto* cq = parts_.completion_queues.find(cqn);
    if (cq == nullptr || !cq->write(cqe, solicited)) fail_soon(qp);
  }
  /// The user index in CQEs of receives. In CQE version 0 it is the SRQ number, by which drivers
  /// find the SRQ.
  static std::uint32_t receive_user_index(const QueuePair& qp) {
    return qp.cqe_version_0() && qp.uses_srq() ? qp.srqn().value() : qp.cqe_user_index();
  }
  void fail_soon(QueuePair& qp);
  /// Logs a line in the format of the transport's own lines.
  template <class Info>
  void note(const QueuePair& qp, std::string_view what, const Info& info, rdma::Reason reason) {
    parts_.notes.info("QP {:#x}: {}: {} ({}, reason {})", qp.qpn().value(), what, info.text,
                      info.section, static_cast<unsigned>(reason));
  }

  CommandResult use_pd_and_uar(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);
  CommandResult use_xrc_domain(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);
  CommandResult use_queues(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);

  void watch(QueuePair& qp);
  void unwatch(QueuePair& qp);
  void poll_watched(util::Time now, util::WorkBudget& work);
  void fail_listed(util::WorkBudget& work);
  void post_srq_events(SharedReceiveQueue& srq);

  Parts parts_;
  rdma::Transport transport_;
  hca::ObjectTable<SharedReceiveQueue, Srqn> shared_queues_;
  std::uint32_t rmps_ = 0;  ///< RMPs in shared_queues_
  std::uint32_t srqs_ = 0;  ///< all others in shared_queues_
  hca::ObjectTable<QueuePair, Qpn> queue_pairs_;
  hca::ObjectTable<Dct, Qpn> dcts_;
  std::optional<Qpn> gsi_;
  std::vector<Qpn> umr_queues_;  ///< QPs of the service REG_UMR
  std::size_t open_faults_ = 0;
  std::uint64_t destinations_ = 0;               ///< last UdDestination::number in use
  util::Time now_{};                             ///< time of the last handle_frame() or run()
  std::uint64_t ticks_ = 0;                      ///< now_ as device ticks, for CQEs
  hca::FailingList<Qpn, rdma::Reason> failing_;  ///< QPs whose CQ failed
  hca::FlushPoller<QueuePair> flush_poller_;
  util::Time next_poll_ = util::kNever;
  std::array<std::byte, kSendWqeMax> send_wqe_;  ///< the WQE being decoded
};

}  // namespace softhca::connectx
