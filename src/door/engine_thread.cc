// The thread of an engine: it looks after what no call of the program drives, often while there is
// something to do, and not at all while there is nothing.
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "door/doorbell_traps.h"
#include "door/engine.h"
#include "door/fault_guard.h"
#include "door/interpose.h"

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

/// Without anything to do for so long, it is not worth while to look any more.
constexpr util::Duration kCalm = 50ms;
/// Nor to go to sleep for less than this.
constexpr util::Duration kRestMin = 20ms;
/// Between two looks of a sleeper, and two tries to become one.
constexpr util::Duration kRestMax = 1s;

void drain(int eventfd) {
  std::uint64_t count;
  (void)!::read(eventfd, &count, sizeof count);
}

/// SOFTHCA_DOORBELLS=poll: doorbell pages stay as they are. For debuggers, which stop at each trap.
bool may_trap() {
  const char* const given = std::getenv("SOFTHCA_DOORBELLS");
  return given == nullptr || std::string_view(given) != "poll";
}

}  // namespace

util::Time Engine::next_event() const {
  return rdma_cm_ == nullptr ? next_ : std::min(next_, rdma_cm_->next_tick());
}

bool Engine::wait(util::Duration longest) {
  const timespec timeout{.tv_sec = longest / 1s, .tv_nsec = (longest % 1s) / 1ns};
  pollfd fds[] = {{.fd = joined_->wake_me.get(), .events = POLLIN, .revents = 0},
                  {.fd = poke_.get(), .events = POLLIN, .revents = 0}};
  if (::ppoll(fds, 2, &timeout, nullptr) <= 0) return false;
  for (const auto& one : fds) {
    if (one.revents != 0) drain(one.fd);
  }
  return true;
}

/// Until there is something to do, or it is time to look at the records again: soon at first.
void Engine::nap(unsigned idle_turns) {
  // Where no queue can be rung, twice as long each time, so that it comes to rest.
  (void)wait(
      device_->records().empty()
          ? std::min(util::Duration(1s), util::Duration(20us) * (1u << std::min(idle_turns, 16u)))
          : std::min(util::Duration(1ms), util::Duration(20us) * (1u + idle_turns / 16)));
}

bool Engine::look(bool& sleeps) {
  const bool busy = turn();
  if (const auto now = util::monotonic_now(); now - last_look_ > 1s) {
    last_look_ = now;
    drop_closed();
    for (auto& [inode, file] : files_) file.context->tell_clock();
  }
  sleeps = !busy && link_->prepare_to_sleep();
  return busy;
}

bool Engine::rest() {
  bool sleeps = false;
  {
    const std::lock_guard held(lock_);
    const auto is_ours = [this](dev_t device, ino_t inode) {
      const auto at = files_.find(inode);
      return at != files_.end() && at->second.file.device() == device;
    };
    if (next_event() < util::monotonic_now() + kRestMin) return false;
    if (!arm_doorbell_traps(is_ours, poke_.get())) return false;
    (void)look(sleeps);
  }
  while (sleeps) {
    util::Duration longest = kRestMax;
    {
      const std::lock_guard held(lock_);
      longest = std::clamp<util::Duration>(next_event() - util::monotonic_now(), 0s, kRestMax);
    }
    if (wait(longest)) break;
    const std::lock_guard held(lock_);
    if (stopping_) return true;
    (void)look(sleeps);
  }
  const std::lock_guard held(lock_);
  disarm_doorbell_traps();
  return true;
}

void Engine::work() {
  ::pthread_setname_np(::pthread_self(), "softhca");
  ::prctl(PR_SET_TIMERSLACK, 1);
  unblock_faults();
  const OwnCalls own;
  const FaultGuard guard;
  const bool traps = may_trap();
  unsigned idle = 0;
  std::uint64_t turns_seen = 0;
  auto calm_since = util::monotonic_now();
  for (;;) {
    bool sleeps = true;
    bool has_queues = false;
    {
      const std::lock_guard held(lock_);
      if (stopping_) return;
      idle = look(sleeps) ? 0 : idle + 1;
      has_queues = !device_->records().empty();
    }
    if (!sleeps) continue;
    const auto now = util::monotonic_now();
    // A program that polls lets its device work itself, and does not want to be trapped.
    const auto turns = inline_turns_.load(std::memory_order_relaxed);
    if (idle == 1 || turns != turns_seen) calm_since = now;
    turns_seen = turns;
    if (traps && has_queues && now - calm_since > kCalm) {
      if (rest()) {
        idle = 0;
      } else {
        calm_since = now + kRestMax;
      }
      continue;
    }
    nap(idle);
  }
}

}  // namespace softhca::door
