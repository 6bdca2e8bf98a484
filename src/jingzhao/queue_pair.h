// A queue pair: its context in the ICM, a chain of send WQEs, a ring of receive WQEs
// (JingZhao 3.2.6, 3.4).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hca/failing_list.h"
#include "hca/faulty_queues.h"
#include "jingzhao/completion_queues.h"
#include "jingzhao/doorbells.h"
#include "jingzhao/icm_cache.h"
#include "jingzhao/numbers.h"
#include "jingzhao/profile.h"
#include "jingzhao/queue_memory.h"
#include "jingzhao/receive_ring.h"
#include "jingzhao/send_wqe.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao {

class QueuePairs;

class QueuePair final : private rdma::WorkQueues {
 public:
  using Context = spec::jingzhao::qp_context;

  /// `number`: the QPN as software has given it.
  QueuePair(Qpn number, const Numbering& numbering, rdma::QpType type, QueuePairs& all)
      : number_(number), qpn_(numbering.qpn(number)), all_(all) {
    rules_.type = type;
  }

  Qpn qpn() const { return qpn_; }        ///< its place in the table
  Qpn number() const { return number_; }  ///< for CQEs and events
  Cqn send_cqn() const { return cqns_.send; }
  Cqn receive_cqn() const { return cqns_.receive; }
  rdma::WorkQueues& work_queues() { return *this; }

  /// Called once, when the transport has created its QP.
  void bind(rdma::QueuePair& rdma_qp) { rdma_qp_ = &rdma_qp; }
  rdma::QueuePair& rdma_qp() { return *rdma_qp_; }
  const rdma::QueuePair& rdma_qp() const { return *rdma_qp_; }

  /// Called after a change of the fault rules, and for a new QP while there are rules. True if a
  /// request that was held back goes on: the transport must be notified.
  bool follow_fault_rules(const hca::FaultHook& faults);

  /// Decodes the queues from the context. `brought`: its load number.
  void decode(util::View<Context> context, const Numbering& numbering, std::uint64_t brought);
  /// Writes the current state back to the context.
  void update(util::MutableView<Context> context) const;
  /// Load number of the context that was decoded last.
  std::uint64_t brought() const { return brought_; }

  // State of QueuePairs and its parts.
  Doorbells::Queue doorbells;
  std::uint32_t slot = 0;  ///< position of its context in the cache
  hca::Failure failure = hca::Failure::kNone;
  std::uint64_t born = 0;                ///< number of the last loss before its creation
  bool rung = false;                     ///< is in the list of QPs with doorbells
  std::optional<std::uint32_t> watched;  ///< index in the list of the FlushPoller

  /// True if posted receives are flushed from now on, with a CQE each.
  bool reports_flushed_receives() const { return rdma_qp_->flushes_receives() && !receives_lost_; }
  ReceiveRing& receives() { return receives_; }
  const ReceiveRing& receives() const { return receives_; }

 private:
  friend class QueuePairs;

  rdma::Fetch fetch_send(rdma::SendRequest& request) override;
  void restart_send() override;
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) override;
  void complete_send(const rdma::SendCompletion& completion) override;
  void complete_receive(const rdma::ReceiveCompletion& completion) override;
  void handle_event(rdma::QpEvent event, rdma::Reason reason) override;
  void complete_send_slow(const rdma::SendCompletion& completion);

  void lose_sends();
  /// Drops all posted sends after a fault.
  rdma::Fetch lose(WqeFault fault);
  rdma::Fetch fetch(const SendWqe& wqe, rdma::SendRequest& request);
  rdma::Fetch fetch_beyond(SendWqe wqe, rdma::SendRequest& request);
  rdma::Fetch fetch_slow(SendWqe wqe, rdma::SendRequest& request);
  bool read_wqe(const SendWqe& wqe, std::span<std::byte> out);
  /// Makes the successor that the WQE names the next one.
  void follow(util::View<spec::jingzhao::next_unit> next, bool stale);
  bool is_flushing() const;

  Qpn number_;
  Qpn qpn_;
  QueuePairs& all_;
  rdma::QueuePair* rdma_qp_ = nullptr;
  std::uint64_t brought_ = 0;
  // Decoded from the context.
  SendRules rules_;
  struct {
    Cqn send, receive;
  } cqns_;
  CompletionQueues::Place send_cq_;
  QueueMemory sends_;
  ReceiveRing receives_;

  std::optional<SendWqe> next_;  ///< next WQE of the current chain
  std::uint16_t sends_fetched_ = 0;
  bool receives_lost_ = false;                 ///< the CQE of a receive could not be written
  std::unique_ptr<hca::FaultyQueues> faulty_;  ///< null: there were no fault rules yet
};

}  // namespace softhca::jingzhao
