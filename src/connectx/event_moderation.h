// Completion Event Moderation (PRM 7.13.14): which CQs hold their event back, and until when.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/clock.h"

namespace softhca::connectx {

class EventModeration {
 public:
  /// The time of the device's present turn.
  util::Time now() const { return now_; }

  /// The CQ, which holds none yet, has an event to report at `until`.
  void hold(std::uint32_t cqn, util::Time until) { held_.push_back({cqn, until}); }
  /// The CQ has reported it, or is gone.
  void forget(std::uint32_t cqn) {
    std::erase_if(held_, [cqn](const Held& held) { return held.cqn == cqn; });
  }

  /// A turn of the device: report(cqn) for each event that is due. It may forget CQs.
  template <class Report>
  void run(util::Time now, Report&& report) {
    now_ = now;
    for (std::size_t i = 0; i < held_.size();) {
      if (held_[i].until > now) {
        ++i;
        continue;
      }
      const auto cqn = held_[i].cqn;
      held_[i] = held_.back();
      held_.pop_back();
      report(cqn);
    }
  }
  /// When the next event is due.
  util::Time next() const {
    auto next = util::kNever;
    for (const auto& held : held_) next = std::min(next, held.until);
    return next;
  }

 private:
  struct Held {
    std::uint32_t cqn;
    util::Time until;
  };

  util::Time now_{};
  std::vector<Held> held_;
};

}  // namespace softhca::connectx
