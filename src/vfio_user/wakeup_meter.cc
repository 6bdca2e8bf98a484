#include "vfio_user/wakeup_meter.h"

#include <time.h>

namespace softhca::vfio_user {

util::Time thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return util::Time(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

void WakeupMeter::count(util::Duration taken) {
  if (exceeded()) return;
  const auto before = counted_.load(std::memory_order_relaxed);
  const auto more = std::min(taken, kCountMax) - kAllowed;
  counted_.store(std::max(util::Duration::zero(), before + more), std::memory_order_relaxed);
  if (exceeded() && notice_ != nullptr) notice_->raise();
}

void WakeupMeter::suspect(util::Duration taken) {
  auto before = util::Duration::zero();
  const auto more = std::min(taken, kCountMax) - kAllowed;
  counted_.compare_exchange_strong(before, std::max(util::Duration::zero(), more),
                                   std::memory_order_relaxed);
}

}  // namespace softhca::vfio_user
