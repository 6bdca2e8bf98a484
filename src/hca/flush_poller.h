// Polling of receive queues that are flushed. Software rings no doorbell for a receive that it
// posts to a QP in ERR: only memory shows it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "util/clock.h"
#include "util/work_budget.h"

namespace softhca::hca {

/// `Queue` has a member `watched`, a std::optional<std::uint32_t>: its index in the list.
template <class Queue>
class FlushPoller {
 public:
  /// Polls this queue, too, and all of them fast again.
  void watch(Queue& queue) {
    if (!queue.watched) {
      queue.watched = static_cast<std::uint32_t>(watched_.size());
      watched_.push_back(&queue);
    }
    interval_ = kIntervalMin;
  }
  /// No effect on a queue that is not watched.
  void unwatch(Queue& queue) {
    if (!queue.watched) return;
    auto& place = watched_[*queue.watched];
    place = watched_.back();
    place->watched = queue.watched;
    watched_.pop_back();
    queue.watched.reset();
  }
  bool empty() const { return watched_.empty(); }
  /// Time until the next poll. It doubles with each call until the next watch().
  util::Duration back_off() {
    return std::exchange(interval_, std::min(interval_ * 2, kIntervalMax));
  }

  /// Calls `look(queue)` for watched queues until `work` is spent. `look` reports posted receives
  /// to the transport, and charges for that. It returns false if the queue is no longer flushed.
  /// Returns when poll() is due again.
  template <class Look>
  [[gnu::noinline]] util::Time poll(util::Time now, const util::WorkBudget& work, Look&& look) {
    for (auto looks = std::min(watched_.size(), kPolledAtOnce); looks != 0 && !work.spent();
         --looks) {
      if (next_watched_ >= watched_.size()) next_watched_ = 0;
      auto& queue = *watched_[next_watched_];
      if (look(queue)) {
        ++next_watched_;
      } else {
        unwatch(queue);
      }
    }
    return watched_.empty() ? util::kNever : now + back_off();
  }

 private:
  // A program that drains a QP in ERR posts a receive and waits for its flush. Poll fast at first,
  // then more slowly.
  static constexpr util::Duration kIntervalMin = std::chrono::microseconds(50);
  static constexpr util::Duration kIntervalMax = std::chrono::microseconds(1000);
  /// Most queues that one poll() checks; the next one continues. A guest may have all its QPs in
  /// ERR.
  static constexpr std::size_t kPolledAtOnce = 256;

  std::vector<Queue*> watched_;
  std::size_t next_watched_ = 0;  ///< index of the queue that poll() checks next
  util::Duration interval_ = kIntervalMin;
};

}  // namespace softhca::hca
