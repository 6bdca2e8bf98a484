#include "jingzhao/flush_poller.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "jingzhao/queue_pair.h"
#include "pcie/dma_space.h"

namespace softhca::jingzhao {

namespace {

using std::chrono::microseconds;

// A program that drains a QP in ERR posts a receive and waits for its flush. Poll fast at first,
// then more slowly.
constexpr util::Duration kIntervalMin = microseconds(50);
constexpr util::Duration kIntervalMax = microseconds(1000);
constexpr std::int64_t kPollWork = 50;
/// Limit on the QPs that one poll() checks. The next poll() continues.
constexpr std::size_t kPolledAtOnce = 256;

}  // namespace

void FlushPoller::watch(QueuePair& qp) {
  if (!qp.watched) {
    qp.watched = static_cast<std::uint32_t>(watched_.size());
    watched_.push_back(&qp);
  }
  interval_ = kIntervalMin;
}

void FlushPoller::unwatch(QueuePair& qp) {
  if (!qp.watched) return;
  auto& place = watched_[*qp.watched];
  place = watched_.back();
  place->watched = qp.watched;
  watched_.pop_back();
  qp.watched.reset();
}

util::Time FlushPoller::poll(util::Time now, util::WorkBudget& work) {
  // Checking a queue may load its region.
  for (auto looks = std::min(watched_.size(), kPolledAtOnce); looks != 0 && !work.spent();
       --looks) {
    work.charge(kPollWork);
    if (next_watched_ >= watched_.size()) next_watched_ = 0;
    auto& qp = *watched_[next_watched_];
    if (!qp.reports_flushed_receives()) {
      unwatch(qp);
      continue;
    }
    if (qp.has_receive()) transport_.notice_receive(qp.rdma_qp());
    ++next_watched_;
    work.charge(keys_.take_work());
    work.charge(pcie::RemoteAccesses::take_work());
  }
  const auto next = watched_.empty() ? util::kNever : now + interval_;
  interval_ = std::clamp(interval_ * 2, kIntervalMin, kIntervalMax);
  return next;
}

}  // namespace softhca::jingzhao
