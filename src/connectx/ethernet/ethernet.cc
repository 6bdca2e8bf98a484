#include "connectx/ethernet/ethernet.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/ethernet/eth_receiver.h"
#include "connectx/ethernet/eth_transmitter.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"

namespace softhca::connectx {

namespace {

/// Limit on the steps (frames, NOPs, flushed WQEs) of one SQ before the next SQ runs; the cost of a
/// step with its receiver's work.
constexpr unsigned kQueueSteps = 16;
constexpr std::int64_t kStepWork = 2000;
/// Limit on the RQs that one poll checks.
constexpr std::size_t kLooksAtOnce = 256;
// Costs of flushing a receive WQE, of checking whether an RQ flushes, of destroying an object, and
// of destroying an RQT entry, whose RQ is not in the processor's cache.
constexpr std::int64_t kFlushWork = 200;
constexpr std::int64_t kLookWork = 10;
constexpr std::int64_t kEthernetDestroyWork = 600;
constexpr std::int64_t kRqtEntryWork = 10;
/// Interval for polling RQs in the error state for new WQEs to flush, which are not urgent.
constexpr util::Duration kFlushInterval = std::chrono::milliseconds(1);

}  // namespace

Ethernet::Ethernet(const Parts& parts)
    : parts_(parts),
      rqt_entries_(kRqtEntriesMax),
      tiss_(std::make_unique<hca::ObjectTable<Tis, Tisn>>(1,
                                                          Limits::count(parts.limits.log_max_tis))),
      send_queues_(std::make_unique<hca::ObjectTable<SendQueue, Sqn>>(
          parts.resources.queue_numbers(), Limits::count(parts.limits.log_max_sq),
          parts.resources.first_queue())),
      receive_queues_(std::make_unique<hca::ObjectTable<ReceiveQueue, Rqn>>(
          parts.resources.queue_numbers(), Limits::count(parts.limits.log_max_rq),
          parts.resources.first_queue())),
      rqts_(std::make_unique<hca::ObjectTable<Rqt, Rqtn>>(1,
                                                          Limits::count(parts.limits.log_max_rqt))),
      tirs_(std::make_unique<hca::ObjectTable<Tir, Tirn>>(1,
                                                          Limits::count(parts.limits.log_max_tir))),
      steering_(std::make_unique<FlowSteering>(parts.limits)),
      transmitter_(std::make_unique<EthTransmitter>(parts.keys, parts.port, *steering_)),
      receiver_(std::make_unique<EthReceiver>(EthReceiver::Parts{.keys = parts.keys,
                                                                 .steering = *steering_,
                                                                 .tirs = *tirs_,
                                                                 .port = parts.port,
                                                                 .failed = failed_})) {}

Ethernet::~Ethernet() = default;

bool Ethernet::owns(Sqn sqn) const { return send_queues_->find(sqn) != nullptr; }

bool Ethernet::listens(Sqn sqn, UarPage page) const {
  const auto* sq = send_queues_->find(sqn);
  return sq != nullptr && sq->uar_page() == page;
}

bool Ethernet::has_news(Sqn sqn) {
  auto* sq = send_queues_->find(sqn);
  return sq != nullptr && sq->has_news();
}

void Ethernet::forget_template(Sqn sqn) { send_queues_->find(sqn)->forget_template(); }

void Ethernet::doorbell(Sqn sqn) {
  auto* sq = send_queues_->find(sqn);
  if (sq == nullptr) return;
  sq->handle_doorbell();
  schedule(*sq);
}

void Ethernet::follow_fault_rules() {
  send_queues_->for_each([this](SendQueue& sq) {
    sq.follow_fault_rules();
    sq.handle_doorbell();
    schedule(sq);
  });
}

void Ethernet::schedule(SendQueue& sq) {
  if (!sq.has_work() || sq.scheduled) return;
  sq.scheduled = true;
  ready_.push_back(sq.sqn());
}

SendQueue* Ethernet::add_sq(util::View<spec::connectx::sq_context> context, WorkQueue wq,
                            CompletionQueue& cq, Tis* tis) {
  const SendQueue::Parts parts{.cq = cq,
                               .tis = tis,
                               .port = parts_.port,
                               .event_queues = parts_.event_queues,
                               .blue_flame = parts_.blue_flame,
                               .notes = parts_.notes,
                               .multi_packet_sends = parts_.multi_packet_sends};
  auto* sq = send_queues_->emplace(context, std::move(wq), parts);
  if (sq != nullptr && parts_.shared_doorbells != nullptr) sq->listen(*parts_.shared_doorbells);
  return sq;
}

ReceiveQueue* Ethernet::add_rq(util::View<spec::connectx::rq_context> context, WorkQueue wq,
                               CompletionQueue& cq) {
  const ReceiveQueue::Parts parts{.cq = cq,
                                  .keys = parts_.keys,
                                  .resources = parts_.resources,
                                  .port = parts_.port,
                                  .event_queues = parts_.event_queues,
                                  .notes = parts_.notes};
  return receive_queues_->emplace(context, std::move(wq), parts);
}

bool Ethernet::handle_frame_fast(const wire::Frame& frame, util::Time now) {
  return receiver_->receive_fast(frame, now);
}

void Ethernet::invalidate_flows() { receiver_->invalidate_flows(); }

void Ethernet::handle_frame(const wire::Frame& frame, util::Time now) {
  receiver_->receive(frame, now);
}

void Ethernet::look_for_transmit_tables() { transmitter_->look_for_tables(); }

bool Ethernet::sniffs_received() const {
  return steering_->has_root(FlowSteering::Type::SNIFFER_RX);
}

bool Ethernet::sniffs_sent() const { return steering_->has_root(FlowSteering::Type::SNIFFER_TX); }

void Ethernet::sniff_received(const wire::Frame& frame, util::Time now) {
  receiver_->sniff(FlowSteering::Type::SNIFFER_RX, frame, now);
}

void Ethernet::sniff_sent(const wire::Frame& frame, util::Time now) {
  receiver_->sniff(FlowSteering::Type::SNIFFER_TX, frame, now);
}

bool Ethernet::handle_loopback(const wire::Frame& frame, TransportDomain domain, util::Time now) {
  return receiver_->receive_looped(frame, domain, now);
}

bool Ethernet::dismantle(util::WorkBudget& work) {
  const auto one = [](const auto&) { return kEthernetDestroyWork; };
  const auto table = [](const Rqt& rqt) {
    return kEthernetDestroyWork + static_cast<std::int64_t>(rqt.entries.size()) * kRqtEntryWork;
  };
  return steering_->dismantle(work) && tirs_->dismantle(work, one) &&
         rqts_->dismantle(work, table) && receive_queues_->dismantle(work, one) &&
         send_queues_->dismantle(work, one) && tiss_->dismantle(work, one);
}

util::Time Ethernet::run_queues(util::Time now, util::WorkBudget& work) {
  std::size_t done = 0;
  while (done != ready_.size() && !work.spent()) {
    auto* sq = send_queues_->find(ready_[done++]);
    if (sq == nullptr) continue;  // destroyed meanwhile
    sq->scheduled = false;
    unsigned steps = kQueueSteps;
    sq->run(*transmitter_, now, steps);
    work.charge((kQueueSteps - steps) * kStepWork);
    if (parts_.keys.work().any()) work.charge(parts_.keys.work().drain());
    schedule(*sq);
    if (sq->awaits_release() && !std::exchange(sq->in_waiting_list, true)) {
      waiting_.push_back(sq->sqn());
    }
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(done));
  if (!failed_.empty()) {
    flushing_.insert(flushing_.end(), failed_.begin(), failed_.end());
    failed_.clear();
    next_flush_ = now;
  }
  if (now >= next_flush_) flush_receive_queues(now, work);
  return ready_.empty() && waiting_.empty() ? next_flush_ : now;
}

void Ethernet::report_waiting(util::Time now) {
  std::erase_if(waiting_, [&](Sqn sqn) {
    auto* sq = send_queues_->find(sqn);
    if (sq == nullptr) return true;  // destroyed meanwhile
    sq->report_released(now);
    if (sq->awaits_release()) return false;
    sq->in_waiting_list = false;
    return true;
  });
}

void Ethernet::schedule_flush(ReceiveQueue& rq) {
  if (!rq.flushes()) return;
  if (!std::exchange(rq.in_flush_list, true)) flushing_.push_back(rq.rqn());
  next_flush_ = util::Time::min();
}

/// Flushes RQs in the error state until `work` is spent: a guest may have all its RQs in that
/// state, full of WQEs.
void Ethernet::flush_receive_queues(util::Time now, util::WorkBudget& work) {
  bool more = false;
  for (auto looks = std::min(flushing_.size(), kLooksAtOnce); looks != 0; --looks) {
    if (work.spent()) {
      more = true;
      break;
    }
    work.charge(kLookWork);
    if (next_flushing_ >= flushing_.size()) next_flushing_ = 0;
    auto* rq = receive_queues_->find(flushing_[next_flushing_]);
    if (rq == nullptr || !rq->flushes()) {
      if (rq != nullptr) rq->in_flush_list = false;
      flushing_[next_flushing_] = flushing_.back();
      flushing_.pop_back();
      continue;
    }
    auto steps = kQueueSteps;
    rq->flush(steps);
    work.charge((kQueueSteps - steps) * kFlushWork);
    more = more || steps == 0;
    ++next_flushing_;
  }
  next_flush_ = flushing_.empty() ? util::kNever : more ? now : now + kFlushInterval;
}

}  // namespace softhca::connectx
