#include "driver/eventfd_interrupts.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

namespace softhca::driver {

util::Result<EventfdInterrupts> EventfdInterrupts::create(unsigned count) {
  EventfdInterrupts interrupts;
  for (unsigned i = 0; i < count; ++i) {
    os::UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!eventfd) return util::fail_errno(fmt::format("an eventfd for interrupt vector {}", i));
    interrupts.vectors_.push_back({std::move(eventfd), 0});
  }
  return interrupts;
}

std::vector<int> EventfdInterrupts::fds() const {
  std::vector<int> fds;
  fds.reserve(vectors_.size());
  for (const auto& vector : vectors_) fds.push_back(vector.eventfd.get());
  return fds;
}

std::uint64_t EventfdInterrupts::signaled(unsigned vector) {
  if (vector >= vectors_.size()) return 0;
  auto& v = vectors_[vector];
  std::uint64_t more = 0;
  if (::read(v.eventfd.get(), &more, sizeof more) == sizeof more) v.signaled += more;
  return v.signaled;
}

void EventfdInterrupts::wait(unsigned vector, int other, util::Time until) const {
  const int eventfd = vector < vectors_.size() ? vectors_[vector].eventfd.get() : -1;
  std::array<pollfd, 2> fds{pollfd{.fd = eventfd, .events = POLLIN, .revents = 0},
                            pollfd{.fd = other, .events = POLLIN, .revents = 0}};
  const auto left = std::max(until - util::monotonic_now(), util::Duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
  // If a signal interrupts this, the caller looks again.
  (void)::ppoll(fds.data(), fds.size(), &timeout, nullptr);
}

}  // namespace softhca::driver
