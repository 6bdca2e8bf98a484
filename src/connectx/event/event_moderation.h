// Completion Event Moderation (PRM 7.13.14): which CQs hold their event back, and until when.
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

  /// The time of the device's present turn.
  util::Time now() const { return now_; }

  /// The CQ, which holds none yet, has an event to report at `until`.
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
  /// The CQ has reported what it held until then, or is gone.
  void forget(Cqn cqn, util::Time until) { spare_.push_back(held_.extract({until, cqn})); }

  /// A turn of the device begins. True: an event is due.
  bool begin_turn(util::Time now) {
    now_ = now;
    return !held_.empty() && held_.begin()->until <= now;
  }
  /// report(cqn) for each event that is due, until `work` is spent. It may forget CQs.
  template <class Report>
  void report_due(util::WorkBudget& work, Report&& report) {
    while (next() <= now_ && !work.spent()) {
      work.charge(kReportWork);
      const auto cqn = held_.begin()->cqn;
      spare_.push_back(held_.extract(held_.begin()));
      report(cqn);
    }
  }
  /// Gives back what is kept, until `work` is spent, when all CQs are gone. True: nothing is left.
  bool dismantle(util::WorkBudget& work) {
    for (; !spare_.empty(); spare_.pop_back()) {
      if (work.spent()) return false;
      work.charge(kSpareWork);
    }
    return true;
  }
  /// When the next event is due.
  util::Time next() const { return held_.empty() ? util::kNever : held_.begin()->until; }

 private:
  struct Held {
    util::Time until;
    Cqn cqn;
    auto operator<=>(const Held&) const = default;
  };
  // In order of time: a guest has many CQs, and a turn must not cost more for it. Nodes are kept,
  // so that an event costs no allocation.
  using Queue = std::set<Held>;

  util::Time now_{};
  Queue held_;
  std::vector<Queue::node_type> spare_;
};

}  // namespace softhca::connectx
