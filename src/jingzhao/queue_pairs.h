// All queue pairs, with the transport that moves their data (JingZhao 3.2.6).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "hca/failing_list.h"
#include "hca/flush_poller.h"
#include "jingzhao/command.h"
#include "jingzhao/completion_queues.h"
#include "jingzhao/cqe.h"
#include "jingzhao/doorbells.h"
#include "jingzhao/event_queues.h"
#include "jingzhao/infiniband_port.h"
#include "jingzhao/losses.h"
#include "jingzhao/memory_keys.h"
#include "jingzhao/profile.h"
#include "jingzhao/queue_pair.h"
#include "rdma/transport.h"
#include "util/notes.h"

namespace softhca::jingzhao {

class QueuePairs final : private IcmCache::Owner {
 public:
  using Context = QueuePair::Context;

  struct Parts {
    Icm& icm;
    MemoryKeys& memory_keys;
    rdma::KeyTable& keys;  ///< of memory_keys
    EventQueues& event_queues;
    CompletionQueues& completion_queues;
    const hca::FaultHook& faults;
    fabric::Port& port;
    const InfinibandPort* infiniband;  ///< null: Ethernet
    util::Notes& notes;
    std::uint64_t base;
    unsigned log_count;
    std::uint32_t cache;
    const ProfileRules& rules;
    const Numbering& numbering;
  };

  explicit QueuePairs(const Parts& parts);

  // Commands. `number` is the QPN as software has given it.

  /// All transitions of MODIFY_QP except those to RST.
  CommandResult modify(Qpn number, rdma::QpState from, rdma::QpState to,
                       util::View<Context> context);
  CommandResult to_error(Qpn number, util::View<Context> context);
  CommandResult to_reset(Qpn number);
  CommandResult query(Qpn number, util::MutableView<Context> out);
  /// CONF_SPECIAL_QP: packets to QPN 1 go to this QP. @pre qpn.value() < end()
  void set_gsi(Qpn qpn);
  /// [virt, virt + size) of the ICM was unmapped. Has run() fail each QP whose context, or whose
  /// CQ's context, was there, even if it is mapped again before.
  void lose_icm(std::uint64_t virt, std::uint64_t size);
  /// The CQ does not work any more. Has run() fail each QP that completes to it, even if it is
  /// installed again before.
  void lose_cq(Cqn cqn);

  /// Takes the attributes that the subnet manager has set on the port. The QPs take their P_Keys in
  /// refresh_pkeys(), which run() calls.
  void take_link_attributes();
  /// Continues until `work` is spent. True if no QP is left.
  bool refresh_pkeys(util::WorkBudget& work);

  /// Called after a change of the fault rules.
  void follow_fault_rules();

  // Doorbells, frames and time.

  /// Handles a doorbell from a UAR page.
  void ring(SendDoorbell doorbell) {
    auto* qp = find(parts_.numbering.qpn(doorbell.qpn()));
    // "RST, INIT, RTR drop the doorbell": in these states there is nothing to flush either.
    if (qp == nullptr) return;
    const auto state = qp->rdma_qp().state();
    if (state == rdma::QpState::kInit || state == rdma::QpState::kRtr) return;
    if (!doorbells_.push(qp->doorbells, doorbell)) [[unlikely]]
      return lose_doorbell(*qp);
    if (!qp->rung) rung_.add(*qp);
  }
  bool handle_frame(const wire::Frame& frame, util::Time now) {
    return transport_.handle_frame(frame, now);
  }
  util::Time run(util::Time now, util::WorkBudget& work);

  /// Removes the highest number from the table, and destroys its QP if there is one: then returns
  /// true. Call only end() and the destructor after that. @pre end() != 0
  bool drop_last() {
    const auto last = std::move(queue_pairs_.back());
    queue_pairs_.pop_back();
    if (last != nullptr) transport_.destroy_qp(last->rdma_qp());
    return last != nullptr;
  }

  // For QueuePair, called while the transport is processing.

  rdma::KeyTable& keys() { return parts_.keys; }
  /// Makes sure that the context is on chip and decoded. False if its memory is gone.
  bool refresh(QueuePair& qp) {
    if (contexts_.touch_fast(qp.slot, qp.brought())) [[likely]]
      return true;
    const auto brought = contexts_.touch(qp.qpn().value(), qp.slot);
    return brought != 0 && (brought == qp.brought() || decode_slow(qp));
  }
  Doorbells& doorbells() { return doorbells_; }
  /// Polls for receives posted to a QP in ERR, which must be flushed.
  void watch(QueuePair& qp);
  /// Writes a CQE that `fill(cqe)` fills in. False if the CQ does not work; then the QP fails.
  template <class Fill>
  bool write_cqe(QueuePair& qp, Cqn cqn, Fill&& fill) {
    if (parts_.completion_queues.write(cqn, fill)) return true;
    fail_soon(qp, rdma::Reason::kCompletionQueueFailed);
    return false;
  }
  CompletionQueues::Place completion_queue(Cqn cqn) { return parts_.completion_queues.place(cqn); }
  void handle_event(QueuePair& qp, rdma::QpEvent event, rdma::Reason reason);
  void note(const QueuePair& qp, std::string_view what, rdma::Reason reason);

  wire::Link link() const {
    return parts_.infiniband == nullptr ? wire::Link::kEthernet : wire::Link::kInfiniband;
  }

  // Inspection.
  std::uint32_t end() const { return static_cast<std::uint32_t>(queue_pairs_.size()); }
  std::uint32_t count() const { return count_; }
  const QueuePair* find(Qpn qpn) const {
    return qpn.value() < queue_pairs_.size() ? queue_pairs_[qpn.value()].get() : nullptr;
  }
  const IcmCache& contexts() const { return contexts_; }
  IcmCache& contexts() { return contexts_; }
  const rdma::PortCounters& counters() const { return transport_.counters(); }

 private:
  QueuePair* find(Qpn qpn) {
    return qpn.value() < queue_pairs_.size() ? queue_pairs_[qpn.value()].get() : nullptr;
  }
  void update(std::uint32_t index, std::span<std::byte> entry) override;
  util::Time run_losses(util::Time now, util::WorkBudget& work);
  void check_losses(QueuePair& qp);
  void fail_soon(QueuePair& qp, rdma::Reason reason);
  bool decode_slow(QueuePair& qp);
  void lose_doorbell(QueuePair& qp);
  CommandResult create(Qpn number, util::View<Context> context);
  void remove(QueuePair& qp);
  CommandResult transition(QueuePair& qp, rdma::QpState to, util::View<Context> context);

  Parts parts_;
  IcmCache contexts_;
  Doorbells doorbells_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  ///< by QPN
  std::uint32_t count_ = 0;
  std::optional<Qpn> gsi_;
  RungList rung_;
  hca::FailingList<Qpn, rdma::Reason> failing_;
  Losses losses_;
  bool loses_some_ = false;  ///< run_losses() has work
  hca::FlushPoller<QueuePair> flush_poller_;
  std::uint32_t next_refreshed_ = 0;  ///< QPN at which refresh_pkeys() continues; end(): done
  /// When flush_poller_.poll() or refresh_pkeys() has work.
  util::Time next_poll_ = util::kNever;
  rdma::Transport transport_;  ///< is destroyed before the queues that it refers to
};

/// The document's code for a state.
spec::jingzhao::qp_state to_document(rdma::QpState state);

}  // namespace softhca::jingzhao
