// A queue pair: the QP context that its driver wrote, and two rings in one buffer of host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "connectx/base/numbers.h"
#include "connectx/qp/qp_context.h"
#include "connectx/qp/qp_receive_queue.h"
#include "connectx/qp/qp_send_queue.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/shared_doorbells.h"
#include "hca/failing_list.h"
#include "hca/faulty_queues.h"
#include "hca/use.h"
#include "hca/work_ring.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"

namespace softhca::connectx {

class Rdma;

class QueuePair final : private rdma::WorkQueues {
 public:
  /// Uses of the objects that the context refers to.
  struct Uses {
    hca::Use pd;
    hca::Use uar;
    hca::Use send_cq;
    hca::Use receive_cq;
    hca::Use srq;
    hca::Use xrcd;
  };

  /// `queue`: mapped from QpContext::place(). `alignment`: Model::send_queue_alignment.
  /// @pre QpContext::transport_type() returns a type for the context
  QueuePair(Qpn qpn, QpContext::View context, MappedQueue queue, std::uint32_t alignment,
            Rdma& rdma);

  Qpn qpn() const { return qpn_; }
  const QpContext& context() const { return context_; }
  std::span<const pcie::Iova> pages() const { return queue_.reported(queue_.memory.pages()); }

  QpSendQueue& send_queue() { return send_queue_; }
  const QpSendQueue& send_queue() const { return send_queue_; }
  QpReceiveQueue& receive_queue() { return receive_queue_; }
  const QpReceiveQueue& receive_queue() const { return receive_queue_; }
  hca::QueueMemory& memory() { return queue_.memory; }
  hca::DoorbellRecord& record() { return queue_.record; }

  /// Replaces the context. The rings keep their size and place.
  void set_context(QpContext::View context, const QueueMapper& mapper);
  /// Replaces the uses that are held.
  void hold(Uses uses) { uses_ = std::move(uses); }
  /// Registers the QP on its doorbell page. If the page is a shared one, polling it finds the
  /// doorbells.
  void listen(SharedDoorbells& doorbells) {
    listener_ =
        doorbells.listen(context_.uar_page(), {SharedDoorbells::Queue::Kind::kSend, qpn_.value()});
  }
  /// Drops all posted WQEs, as 2RST does.
  void reset_rings();
  /// Called when the QP moves from RESET to INIT. On a shared doorbell page, only the record shows
  /// that WQEs are posted. The counter that an earlier use of the queue left there must not count.
  void begin_record() {
    if (listener_) send_queue_.ring().disregard(queue_.record);
  }

  /// Called once, after the transport has created its part of the QP.
  void bind(rdma::QueuePair& rdma_qp, bool atomics);
  /// The transport's part of the QP.
  rdma::QueuePair& rdma_qp() { return *rdma_qp_; }
  const rdma::QueuePair& rdma_qp() const { return *rdma_qp_; }

  /// The interface for the transport.
  rdma::WorkQueues& queues() { return *this; }
  /// Called after a change of the fault rules, and for a new QP while there are rules. True if a
  /// request that was held back goes on: the transport must be notified.
  bool follow_fault_rules(const hca::FaultHook& faults);

  // State that Rdma keeps for the QP.
  hca::Failure failure = hca::Failure::kNone;  ///< since the last 2RST
  std::optional<std::uint32_t> watched;        ///< index in the list of the FlushPoller

 private:
  rdma::Fetch fetch_send(rdma::SendRequest& request) override;
  rdma::Fetch fetch_datagram_fast(std::uint64_t destination, std::uint32_t bytes_max,
                                  rdma::ShortDatagram& datagram) override;
  void restart_send() override;
  rdma::LocalOutcome execute_local(const rdma::SendRequest& request, bool again) override;
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) override;
  bool fetch_receive_fast(rdma::ReceivePiece& piece) override;
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

  void complete_xrc_receive(const rdma::ReceiveCompletion& completion);
  void set_rules();

  Qpn qpn_;
  QpContext context_;
  MappedQueue queue_;
  Uses uses_;
  SharedDoorbells::Listener listener_;
  QpSendQueue send_queue_;
  QpReceiveQueue receive_queue_;
  Rdma& rdma_;
  rdma::QueuePair* rdma_qp_ = nullptr;
  std::unique_ptr<hca::FaultyQueues> faulty_;  ///< null: there were no fault rules yet
};

}  // namespace softhca::connectx
