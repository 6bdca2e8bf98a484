#include "os/adaptive_poll.h"

#include <algorithm>

namespace softhca::os {

AdaptivePoll::Source& AdaptivePoll::source(unsigned number) {
  if (number >= sources_.size()) sources_.resize(number + 1);
  return sources_[number];
}

void AdaptivePoll::message(unsigned number, util::Time now) {
  if (window_ == util::Duration::zero()) return;
  if (looking_) source(after_) = {};  // the poll was successful
  auto& from = source(number);
  looking_ = from.waiting == 0;
  if (looking_) {
    after_ = number;
    until_ = now + window_;
  } else {
    --from.waiting;
  }
}

void AdaptivePoll::work(util::Time now) {
  if (looking_) until_ = now + window_;
}

bool AdaptivePoll::look(util::Time now) {
  if (!looking_ || now < until_) return looking_;
  looking_ = false;
  auto& from = source(after_);
  from.pause = std::clamp(2 * from.pause, std::uint32_t{1}, kRarest);
  from.waiting = from.pause;
  return false;
}

}  // namespace softhca::os
