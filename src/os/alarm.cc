#include "os/alarm.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace softhca::os {

util::Result<std::unique_ptr<Alarm>> Alarm::create(EventLoop& loop,
                                                   std::function<void()> callback) {
  std::unique_ptr<Alarm> alarm(new Alarm(loop, std::move(callback)));
  alarm->timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (alarm->timer_ < 0) return util::fail_errno("alarm: timerfd_create");
  auto added = loop.add(alarm->timer_, EPOLLIN, [&alarm = *alarm](std::uint32_t) {
    std::uint64_t count;
    // If it was set to another time meanwhile, the read fails.
    if (::read(alarm.timer_, &count, sizeof count) == sizeof count) alarm.callback_();
  });
  if (!added) return tl::unexpected(added.error());
  return alarm;
}

Alarm::~Alarm() {
  if (timer_ < 0) return;
  loop_.remove(timer_);
  ::close(timer_);
}

void Alarm::set(util::Time at) {
  itimerspec when{};
  if (at != util::kNever) {
    // Zero would disarm the timer.
    const auto since = std::max(at.time_since_epoch(), util::Time::duration(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    when.it_value = {.tv_sec = seconds.count(), .tv_nsec = (since - seconds).count()};
  }
  [[maybe_unused]] const auto set = ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  assert(set == 0);
}

}  // namespace softhca::os
