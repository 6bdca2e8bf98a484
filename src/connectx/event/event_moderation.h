// Completion Event Moderation (PRM 7.13.14): the CQs whose event is held back, and when it is due.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "connectx/base/numbers.h"
#include "util/clock.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class EventModeration {
 public:
  static constexpr std::int64_t kReportWork = 300;
  static constexpr std::int64_t kSpareWork = 40;

  /// Time of the device's current turn.
  util::Time now() const { return now_; }

  /// Holds an event of the CQ until `until`. @pre no event of this CQ is held until that time
  void hold(Cqn cqn, util::Time until) {
    if (spare_.empty()) {
      held_.insert({until, cqn});
      return;
    }
    auto node = std::move(spare_.back());
    spare_.pop_back();
    node.value() = {until, cqn};
    held_.insert(std::move(node));
  }
  /// Drops the event of the CQ that is held until `until`: it was reported, or the CQ is destroyed.
  void forget(Cqn cqn, util::Time until) { spare_.push_back(held_.extract({until, cqn})); }

  /// Begins a turn of the device. True if an event is due.
  bool begin_turn(util::Time now) {
    now_ = now;
    return !held_.empty() && held_.begin()->until <= now;
  }
  /// Calls report(cqn) for each due event, until `work` is spent. report() may call forget().
  template <class Report>
  void report_due(util::WorkBudget& work, Report&& report) {
    while (next() <= now_ && !work.spent()) {
      work.charge(kReportWork);
      const auto cqn = held_.begin()->cqn;
      spare_.push_back(held_.extract(held_.begin()));
      report(cqn);
    }
  }
  /// Frees unused nodes until `work` is spent. True if none is left. Call after all CQs are gone.
  bool dismantle(util::WorkBudget& work) {
    for (; !spare_.empty(); spare_.pop_back()) {
      if (work.spent()) return false;
      work.charge(kSpareWork);
    }
    return true;
  }
  /// Time at which the next event is due.
  util::Time next() const { return held_.empty() ? util::kNever : held_.begin()->until; }

 private:
  struct Held {
    util::Time until;
    Cqn cqn;
    auto operator<=>(const Held&) const = default;
  };
  // Sorted by time, so that a turn stays fast if a guest has many CQs. Nodes are reused, so that an
  // event needs no allocation.
  using Queue = std::set<Held>;

  util::Time now_{};
  Queue held_;
  std::vector<Queue::node_type> spare_;
};

}  // namespace softhca::connectx
