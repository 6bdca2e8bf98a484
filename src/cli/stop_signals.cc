#include "cli/stop_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace softhca::cli {

void StopSignals::record(int) {
  const int error = errno;
  seen_ = 1;
  constexpr std::uint64_t kOne = 1;
  (void)!::write(wake_, &kOne, sizeof kOne);
  errno = error;
}

StopSignals::StopSignals() {
  seen_ = 0;
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action{};
  action.sa_handler = record;
  ::sigaction(SIGINT, &action, &interrupt_);
  ::sigaction(SIGTERM, &action, &terminate_);
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGINT);
  sigaddset(&both, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &both, &blocked_);
}

StopSignals::~StopSignals() {
  ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
  ::close(std::exchange(wake_, -1));
}

util::Result<void> StopSignals::check() {
  if (wake_ < 0) return util::fail("no descriptor is left to wait for signals");
  return {};
}

bool StopSignals::wait(int fd, short events, util::Time until) {
  std::array<pollfd, 2> either{{{fd, events, 0}, {wake_, POLLIN, 0}}};
  int ready = 0;
  do {
    int limit = -1;
    if (until != util::kNever) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - util::monotonic_now()).count();
      limit = static_cast<int>(std::clamp<std::int64_t>(left, 0, INT32_MAX));
    }
    ready = ::poll(either.data(), either.size(), limit);
  } while (ready < 0 && errno == EINTR);
  return !seen();
}

}  // namespace softhca::cli
