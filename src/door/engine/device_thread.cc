#include "door/engine/device_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "door/memory/doorbell_traps.h"
#include "door/memory/fault_guard.h"
#include "door/memory/reserve.h"
#include "door/process/own_calls.h"
#include "door/process/without_exceptions.h"
#include "os/event_signal.h"

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

/// Interval between EngineState::do_chores().
constexpr util::Duration kChores = 1s;

/// Blocks all signals, so that a thread created meanwhile does not take the program's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

util::Result<void> DeviceThread::start() {
  const SignalsBlocked blocked;
  try {
    std::thread(&DeviceThread::work, this).detach();
  } catch (const std::system_error& error) {
    return util::fail(
        fmt::format("no thread for the devices (see ulimit -u, pids.max): {}", error.what()));
  }
  return {};
}

void DeviceThread::work() {
  ::pthread_setname_np(::pthread_self(), "softhca");
  ::prctl(PR_SET_TIMERSLACK, 1);
  unblock_faults();
  const OwnCalls own;
  const FaultGuard guard;
  // If an allocation fails, try again later.
  while (without_exceptions([this] {
           look_after_devices();
           return 0;
         }) != 0) {
    ::usleep(SleepPolicy::kDozeMax / 1us);
    (void)without_exceptions([this] {
      // The exception may have come while traps were armed.
      disarm_doorbell_traps(state_.files().is_ours());
      return 0;
    });
  }
}

void DeviceThread::look_after_devices() {
  policy_ = SleepPolicy(traps_doorbells_, util::monotonic_now());
  auto pace = Pace::kSpins;
  for (util::Time now; run_round(pace, now);) spend(pace, now);
}

bool DeviceThread::run_round(Pace& pace, util::Time& now) {
  if (!hold_reserve()) throw std::bad_alloc();
  if (questions_.are_pending()) questions_.answer();
  const auto begin = util::monotonic_now();
  processors_.look(begin);
  const std::lock_guard held(lock_);
  if (stopping_) return false;
  policy_.begin_round(state_.polls(), begin);
  bool waits = false;
  const bool busy = look(waits);
  now = util::monotonic_now();
  pace = policy_.end_round(busy, waits, expected_, now);
  waker_.set_asleep(waits && policy_.doze(load(), expected_, now) > SleepPolicy::kDozeMax);
  return true;
}

void DeviceThread::spend(Pace pace, util::Time now) {
  switch (pace) {
    case Pace::kSpins:
      if (policy_.is_idle()) ::sched_yield();
      break;
    case Pace::kStandsBy:
      (void)wait(SleepPolicy::stand_by(load()));
      policy_.judge_polls(state_.polls(), load(), util::monotonic_now());
      break;
    case Pace::kDozes:
      if (!expected_.doorbells) forget_doorbell_traps();
      if (wait(policy_.doze(load(), expected_, util::monotonic_now()))) policy_.note_wakeup();
      break;
    case Pace::kSleeps:
      if (sleep()) {
        policy_.note_wakeup();
      } else {
        policy_.note_no_sleep(now);
      }
      break;
  }
}

bool DeviceThread::look(bool& waits) {
  if (std::exchange(host_has_changed_, false)) state_.follow_host();
  const bool busy = state_.turn();
  const auto packets = state_.received();
  if (const auto now = util::monotonic_now(); now - last_chores_ > kChores) {
    last_chores_ = now;
    state_.do_chores();
  }
  waits = policy_.may_wait(busy, packets, load(), util::monotonic_now());
  expected_.doorbells = false;
  state_.cards().for_each([&](Card& card) {
    card.set_crowd(processors_.crowd());
    waits = waits && (policy_.program_polls() || card.prepare_to_sleep());
    expected_.doorbells |= !card.device().records().empty();
  });
  expected_.next_event = state_.next_event();
  collect_wakes();
  return busy;
}

bool DeviceThread::sleep() {
  bool waits = false;
  std::uint64_t calls = 0;
  {
    const std::lock_guard held(lock_);
    if (state_.next_event() < util::monotonic_now() + SleepPolicy::kSleepMin) return false;
    calls = state_.calls();
  }
  const auto& is_ours = state_.files().is_ours();
  // Without the lock: this takes milliseconds if the process has many threads and mappings.
  if (!arm_doorbell_traps(is_ours, waker_.fd())) return false;
  {
    const std::lock_guard held(lock_);
    (void)look(waits);
    // A queue created meanwhile may have a page without a trap.
    waits = waits && calls == state_.calls();
    waker_.set_asleep(true);
  }
  while (waits) {
    util::Duration longest{};
    {
      const std::lock_guard held(lock_);
      longest = std::clamp<util::Duration>(state_.next_event() - util::monotonic_now(), 0s,
                                           SleepPolicy::kSleepMax);
    }
    if (wait(longest)) break;
    processors_.look(util::monotonic_now());
    const std::lock_guard held(lock_);
    if (stopping_) return true;
    (void)look(waits);
  }
  {
    const std::lock_guard held(lock_);
    waker_.set_asleep(false);
    (void)look(waits);  // serve it first: disarming takes longer
  }
  disarm_doorbell_traps(is_ours);
  return true;
}

bool DeviceThread::wait(util::Duration longest) {
  const timespec timeout{.tv_sec = longest / 1s, .tv_nsec = (longest % 1s) / 1ns};
  const bool any = ::ppoll(wakes_.data(), wakes_.size(), &timeout, nullptr) > 0;
  questions_.note_time();
  if (!any) return questions_.are_pending();
  for (std::size_t i = 0; i != wakes_.size(); ++i) {
    if (wakes_[i].revents == 0) continue;
    if (i < eventfds_) {
      os::EventSignal::drain(wakes_[i].fd);  // that of a card is shared with its peers
    } else if (i < sockets_end_) {
      continue;  // readable until the next turn takes what has come
    } else if (!questions_.note_event(wakes_[i].fd)) {
      host_has_changed_ = true;
    }
  }
  return true;
}

void DeviceThread::collect_wakes() {
  wakes_.clear();
  const auto add = [this](int fd) {
    if (fd >= 0) wakes_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  };
  add(waker_.fd());
  state_.cards().for_each([&](const Card& card) { add(card.wake()); });
  eventfds_ = wakes_.size();
  // A program that polls takes the packets itself.
  if (!policy_.program_polls()) {
    state_.cards().for_each([&](const Card& card) { card.machines().for_each_socket(add); });
  }
  sockets_end_ = wakes_.size();
  state_.cards().for_each([&](const Card& card) { add(card.host_changes()); });
  if (const auto wanted = questions_.wanted()) wakes_.push_back(*wanted);
}

}  // namespace softhca::door
