// Queue pairs that must fail, later: the transport may be processing them now.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/work_budget.h"

namespace softhca::hca {

enum class Failure : std::uint8_t {
  kNone,
  kWaits,    ///< is in the list
  kHandled,  ///< has failed, or is failing
};

/// Queue pairs have a `qpn()`, a `Number`, and a member `failure`. They may be destroyed while they
/// are in the list.
template <class Number, class Reason>
class FailingList {
 public:
  /// Work (util::WorkBudget) of failing one queue pair.
  static constexpr std::int64_t kFailWork = 1000;
  /// Most queue pairs that one fail_some() handles. The next call continues.
  static constexpr std::size_t kFailedAtOnce = 256;
  /// Queue pairs that it handles even if `work` is spent: other work must not delay them forever.
  static constexpr std::size_t kAtLeast = 16;

  /// False, with no effect, if the queue pair is in the list or has failed.
  template <class Queue>
  bool add(Queue& queue, Reason reason) {
    if (queue.failure != Failure::kNone) return false;
    queue.failure = Failure::kWaits;
    listed_.push_back({queue.qpn(), reason});
    return true;
  }
  bool empty() const { return listed_.empty(); }

  /// Calls `fail(queue, reason)` for queue pairs until `work` is spent. `find(number)` returns a
  /// pointer, null if there is no such queue pair any more.
  template <class Find, class Fail>
  void fail_some(util::WorkBudget& work, Find&& find, Fail&& fail) {
    const auto count = std::min(listed_.size(), kFailedAtOnce);
    for (std::size_t i = 0; i != count && (i < kAtLeast || !work.spent()); ++i) {
      work.charge(kFailWork);
      const auto [number, reason] = listed_.back();
      listed_.pop_back();
      auto* queue = find(number);
      // A number that was destroyed and created again may have two entries: the newer one counts.
      if (queue == nullptr || queue->failure != Failure::kWaits) continue;
      queue->failure = Failure::kHandled;
      fail(*queue, reason);
    }
  }

 private:
  struct Entry {
    Number number;
    Reason reason;
  };
  std::vector<Entry> listed_;
};

}  // namespace softhca::hca
