// A queue pair: the QP context that its driver wrote, and two rings in one buffer of host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "connectx/base/numbers.h"
#include "connectx/qp/cqe.h"
#include "connectx/qp/seen_send_wqe.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/shared_doorbells.h"
#include "hca/failing_list.h"
#include "hca/use.h"
#include "hca/work_ring.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

class Rdma;

class QueuePair final : private rdma::WorkQueues {
 public:
  using Qpc = spec::connectx::qpc;
  using Service = spec::connectx::service_type;

  /// The transport's type for a QP with this context. Unset if the device does not have the
  /// service. An XRC QP is an initiator if it has a send queue, else a target (mlx5 driver
  /// interface 7.5).
  static std::optional<rdma::QpType> transport_type(util::View<Qpc> context);
  /// True for XRC QPs, which take receive WQEs from the SRQ that a request names, whatever rq_type
  /// is.
  static bool is_xrc(util::View<Qpc> context) {
    return static_cast<Service>(context.get(Qpc::st)) == Service::XRC;
  }

  /// Uses of the objects that the context refers to.
  struct Uses {
    hca::Use pd;
    hca::Use uar;
    hca::Use send_cq;
    hca::Use receive_cq;
    hca::Use srq;
    hca::Use xrcd;
  };

  /// Bytes of a receive WQE.
  static std::uint32_t receive_stride(util::View<Qpc> context);
  /// The memory of both rings (mlx5 driver interface 7.2). `alignment`:
  /// Model::send_queue_alignment.
  static QueuePlace place(util::View<Qpc> context, std::span<const std::byte> pas,
                          std::uint32_t alignment);

  /// `queue`: mapped from place(). @pre transport_type() returns a type for the context
  QueuePair(Qpn qpn, util::View<Qpc> context, MappedQueue queue, Rdma& rdma);

  Qpn qpn() const { return qpn_; }
  util::View<Qpc> context() const { return context_; }
  Service service() const { return static_cast<Service>(context().get(Qpc::st)); }
  bool is_datagram() const { return seen_datagram_wqe != nullptr; }
  bool is_gsi() const { return is_gsi_; }
  bool has_send_queue() const { return context().get(Qpc::no_sq) == 0; }
  bool is_xrc() const { return receives_ == Receives::kXrc; }
  bool has_receive_queue() const { return receives_ == Receives::kOwn; }
  /// True if the QP receives no messages, only WRITEs, READs and atomics.
  bool receives_nothing() const { return receives_ == Receives::kNone; }
  /// True if all receive WQEs come from one SRQ.
  bool uses_srq() const { return receives_ == Receives::kSrq; }
  /// True if receive WQEs have signatures. Their first segment is then the signature segment (PRM
  /// 7.4.4.3).
  bool signs_receive_wqes() const { return signs_receive_wqes_; }
  /// True if the QP has its own receive queue, whose WQEs begin with a data segment.
  bool has_plain_receives() const { return receives_ == Receives::kOwn && !signs_receive_wqes_; }
  std::span<const pcie::Iova> pages() const { return queue_.told(queue_.memory.pages()); }

  UarPage uar_page() const { return UarPage(context().get(Qpc::uar_page)); }
  /// If the QP sends nothing, the number is not checked and may name no CQ. The same holds for
  /// receive_cqn().
  Cqn send_cqn() const { return send_cqn_; }
  Cqn receive_cqn() const { return receive_cqn_; }
  Srqn srqn() const { return srqn_; }
  /// The user index in CQEs of this QP; 0 in CQE version 0.
  std::uint32_t cqe_user_index() const { return user_index_ == kNoUserIndex ? 0 : user_index_; }
  bool cqe_version_0() const { return user_index_ == kNoUserIndex; }
  const SendWqeRules& send_rules() const { return send_rules_; }

  hca::WorkRing& send_ring() { return send_ring_; }
  hca::WorkRing& receive_ring() { return receive_ring_; }
  hca::QueueMemory& memory() { return queue_.memory; }
  hca::DoorbellRecord& record() { return queue_.record; }
  const hca::WorkRing& send_ring() const { return send_ring_; }
  const hca::WorkRing& receive_ring() const { return receive_ring_; }

  /// The context, converted to the transport's attributes.
  rdma::QpAttributes attributes() const;
  /// Replaces the context. The rings keep their size and place.
  void set_context(util::View<Qpc> context, const QueueMapper& mapper);
  /// Replaces the uses that are held.
  void hold(Uses uses) { uses_ = std::move(uses); }
  /// Registers the QP on its doorbell page. If the page is a shared one, polling it finds the
  /// doorbells.
  void listen(SharedDoorbells& doorbells) {
    listener_ = doorbells.listen(uar_page(), {SharedDoorbells::Queue::Kind::kSend, qpn_.value()});
  }
  /// Drops all posted WQEs, as 2RST does.
  void reset_rings();
  /// Called when the QP moves from RESET to INIT. On a shared doorbell page, only the record shows
  /// that WQEs are posted, so the counter that an earlier use of the queue left there must not
  /// count.
  void begin_record() {
    if (listener_) send_ring_.disregard(queue_.record);
  }

  /// Called once, after the transport has created its part of the QP.
  void bind(rdma::QueuePair& rdma_qp, bool atomics);
  /// The transport's part of the QP.
  rdma::QueuePair& rdma_qp() { return *rdma_qp_; }
  const rdma::QueuePair& rdma_qp() const { return *rdma_qp_; }

  /// Forgets the templates, so that the next WQE takes the slow path.
  void forget_seen() {
    seen_send_wqe.forget();
    if (seen_datagram_wqe != nullptr) seen_datagram_wqe->forget();
  }

  // State that Rdma keeps for the QP.
  SeenSendWqe seen_send_wqe;                           ///< template of the last WQE
  std::unique_ptr<SeenDatagramWqe> seen_datagram_wqe;  ///< template for datagrams; null unless UD
  hca::Failure failure = hca::Failure::kNone;          ///< since the last 2RST
  std::optional<std::uint32_t> watched;                ///< index in the list of the FlushPoller
  /// Basic blocks at the head of the send queue that were posted in SQE and must not be executed.
  std::uint32_t stale_send_blocks = 0;
  /// True if the last completed send WQE ended in error.
  bool has_reported_error = false;

 private:
  using RqType = spec::connectx::qp_rq_type;
  friend class Rdma;

  rdma::Fetch fetch_send(rdma::SendRequest& request) override;
  rdma::Fetch fetch_short_datagram(std::uint64_t destination, std::uint32_t bytes_max,
                                   rdma::ShortDatagram& datagram) override;
  void restart_send() override;
  rdma::LocalOutcome execute_local(const rdma::SendRequest& request, bool again) override;
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) override;
  bool fetch_receive_piece(rdma::ReceivePiece& piece) override;
  void complete_send(const rdma::SendCompletion& completion) override;
  void complete_receive(const rdma::ReceiveCompletion& completion) override;
  void complete_send_with(const rdma::SendCompletion& completion,
                          std::span<const std::byte> data) override;
  void complete_receive_with(const rdma::ReceiveCompletion& completion,
                             std::span<const std::byte> data) override;
  void handle_event(rdma::QpEvent event, rdma::Reason reason) override;
  void handle_signature_error(const rdma::SignatureError& error, bool sends,
                              rdma::XrcSrqn srqn) override;
  rdma::FaultAnswer open_fault(const rdma::PageFault& fault) override;
  void close_fault() override;

  /// The source of receive WQEs.
  enum class Receives : std::uint8_t { kOwn, kSrq, kXrc, kNone };

  static RqType rq_type(util::View<Qpc> context) {
    return static_cast<RqType>(context.get(Qpc::rq_type));
  }
  static Receives receives(util::View<Qpc> context);
  static std::uint64_t receive_queue_size(util::View<Qpc> context);
  static std::uint64_t send_queue_offset(util::View<Qpc> context, std::uint32_t alignment);
  static hca::WorkRing make_send_ring(util::View<Qpc> context, std::uint32_t alignment);
  static hca::WorkRing make_receive_ring(util::View<Qpc> context);
  void refresh();

  Qpn qpn_;
  util::Struct<Qpc> context_;
  MappedQueue queue_;
  Uses uses_;
  SharedDoorbells::Listener listener_;
  hca::WorkRing send_ring_;
  hca::WorkRing receive_ring_;
  Rdma& rdma_;
  rdma::QueuePair* rdma_qp_ = nullptr;
  // Copies of context fields for the data path.
  Cqn send_cqn_;
  Cqn receive_cqn_;
  Srqn srqn_;
  std::uint32_t user_index_ = kNoUserIndex;
  Receives receives_ = Receives::kNone;
  bool is_gsi_ = false;
  bool signs_receive_wqes_ = false;
  SendWqeRules send_rules_;
};

}  // namespace softhca::connectx
