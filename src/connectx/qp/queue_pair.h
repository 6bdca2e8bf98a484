// A queue pair as its driver made it: the QP context, and both rings in one buffer of host memory.
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

  /// What a QP with this context is to the transport; nothing if the device has no such service. An
  /// XRC QP with a send queue is an initiator, without one a target (mlx5 driver interface 7.5).
  static std::optional<rdma::QpType> transport_type(util::View<Qpc> context);
  /// The receives of XRC are those of the SRQ that a request names, whatever rq_type says.
  static bool is_xrc(util::View<Qpc> context) {
    return static_cast<Service>(context.get(Qpc::st)) == Service::XRC;
  }

  /// What the context refers to.
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
  /// Where both rings lie (mlx5 driver interface 7.2). `alignment`: Model::send_queue_alignment.
  static QueuePlace place(util::View<Qpc> context, std::span<const std::byte> pas,
                          std::uint32_t alignment);

  /// `queue`: mapped from place(). @pre transport_type() knows the context
  QueuePair(Qpn qpn, util::View<Qpc> context, MappedQueue queue, Rdma& rdma);

  Qpn qpn() const { return qpn_; }
  util::View<Qpc> context() const { return context_; }
  Service service() const { return static_cast<Service>(context().get(Qpc::st)); }
  bool is_datagram() const { return seen_datagram_wqe != nullptr; }
  bool is_gsi() const { return is_gsi_; }
  bool has_send_queue() const { return context().get(Qpc::no_sq) == 0; }
  bool is_xrc() const { return receives_ == Receives::kXrc; }
  bool has_receive_queue() const { return !is_xrc() && rq_type(context()) == RqType::NON_ZERO_RQ; }
  /// Always the same one.
  bool uses_srq() const { return receives_ == Receives::kSrq; }
  /// PRM 7.4.4.3: with signatures its first segment is the signature's.
  bool signs_receive_wqes() const { return signs_receive_wqes_; }
  /// The first segment of a receive WQE is one of data, and no other queue's.
  bool has_plain_receives() const { return receives_ == Receives::kOwn && !signs_receive_wqes_; }
  std::span<const pcie::Iova> pages() const { return queue_.told(queue_.memory.pages()); }

  UarPage uar_page() const { return UarPage(context().get(Qpc::uar_page)); }
  Cqn send_cqn() const { return send_cqn_; }
  Cqn receive_cqn() const { return receive_cqn_; }
  Srqn srqn() const { return srqn_; }
  /// What CQEs of this QP carry as user index: 0 in version 0.
  std::uint32_t cqe_user_index() const { return user_index_ == kNoUserIndex ? 0 : user_index_; }
  bool cqe_version_0() const { return user_index_ == kNoUserIndex; }
  const SendWqeRules& send_rules() const { return send_rules_; }

  hca::WorkRing& send_ring() { return send_ring_; }
  hca::WorkRing& receive_ring() { return receive_ring_; }
  hca::QueueMemory& memory() { return queue_.memory; }
  hca::DoorbellRecord& record() { return queue_.record; }
  const hca::WorkRing& send_ring() const { return send_ring_; }
  const hca::WorkRing& receive_ring() const { return receive_ring_; }

  /// What the context means to the transport.
  rdma::QpAttributes attributes() const;
  /// Replaces the context, whose geometry stays.
  void set_context(util::View<Qpc> context, const QueueMapper& mapper);
  /// Instead of those held before.
  void hold(Uses uses) { uses_ = std::move(uses); }
  /// If its doorbell page is a shared one, what is stored there is heard from now on.
  void listen(SharedDoorbells& doorbells) {
    listener_ = doorbells.listen(uar_page(), {SharedDoorbells::Queue::Kind::kSend, qpn_.value()});
  }
  /// As after 2RST: nothing is posted.
  void reset_rings();
  /// From RESET to INIT. On a shared doorbell page the record alone says whether anything is
  /// posted, so what an earlier life of the queue left there goes.
  void begin_record() {
    if (listener_) (void)queue_.record.exchange(kSendCounter, 0);
  }

  /// Set once, when the transport has made its side of the QP.
  void bind(rdma::QueuePair& rdma_qp, bool atomics);
  /// The transport's side of the QP.
  rdma::QueuePair& rdma_qp() { return *rdma_qp_; }
  const rdma::QueuePair& rdma_qp() const { return *rdma_qp_; }

  /// The next WQE is looked at in full, wherever it lies.
  void forget_seen() {
    seen_send_wqe.forget();
    if (seen_datagram_wqe != nullptr) seen_datagram_wqe->forget();
  }

  // Notes of Rdma.
  SeenSendWqe seen_send_wqe;                           ///< of this context
  std::unique_ptr<SeenDatagramWqe> seen_datagram_wqe;  ///< instead, of UD
  bool fails = false;  ///< is in the list of QPs that fail, or was since the last 2RST
  /// Place in the list of QPs that flush receives.
  std::optional<std::size_t> watched;
  /// Basic blocks at the head of the send queue that are not to be executed: posted in SQE.
  std::uint32_t stale_send_blocks = 0;
  /// The last send WQE that completed did so in error.
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

  /// Where receive WQEs come from.
  enum class Receives : std::uint8_t { kOwn, kSrq, kXrc };

  static RqType rq_type(util::View<Qpc> context) {
    return static_cast<RqType>(context.get(Qpc::rq_type));
  }
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
  // From the context, for the data path.
  Cqn send_cqn_;
  Cqn receive_cqn_;
  Srqn srqn_;
  std::uint32_t user_index_ = kNoUserIndex;
  Receives receives_ = Receives::kOwn;
  bool is_gsi_ = false;
  bool signs_receive_wqes_ = false;
  SendWqeRules send_rules_;
};

}  // namespace softhca::connectx
