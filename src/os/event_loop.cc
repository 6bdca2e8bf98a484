#include "os/event_loop.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "util/log.h"

namespace softhca::os {
namespace {

/// Its address identifies the thread, also inside a signal handler.
// Aligned, because mold 1.10 lets the read-only part of a program begin with it: with one byte,
// that part may begin in an unmapped page, and the program does not start.
alignas(64) thread_local const char thread_mark = 0;

std::uint64_t tag(int fd, std::uint32_t generation) {
  // no format: only this loop reads the number
  return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
}

/// Calls a callback. If it runs out of memory, the loop calls it again at its next event.
template <class Callback>
void attempt(const Callback& callback) {
  try {
    callback();
  } catch (const std::bad_alloc&) {
    util::log(util::LogLevel::kError, "out of memory");
  }
}

void clear_event(int fd) {
  std::uint64_t count;
  while (::read(fd, &count, sizeof count) == static_cast<ssize_t>(sizeof count)) {
  }
}

}  // namespace

util::Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (loop->epoll_ < 0) return util::fail_errno("event loop: epoll_create1");
  loop->wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (loop->wake_ < 0) return util::fail_errno("event loop: eventfd");
  const auto wake = loop->wake_;
  auto added = loop->add(wake, EPOLLIN, [wake](std::uint32_t) { clear_event(wake); });
  if (!added) return tl::unexpected(added.error());
  loop->timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (loop->timer_ < 0) return util::fail_errno("event loop: timerfd_create");
  added = loop->add(loop->timer_, EPOLLIN, [&loop = *loop](std::uint32_t) {
    clear_event(loop.timer_);
    loop.timer_at_ = util::kNever;
  });
  if (!added) return tl::unexpected(added.error());
  return loop;
}

EventLoop::~EventLoop() {
  if (signals_ >= 0) ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  for (const int fd : {signals_, timer_, wake_, epoll_}) {
    if (fd >= 0) ::close(fd);
  }
}

util::Result<void> EventLoop::add(int fd, std::uint32_t events, Callback callback) {
  const auto index = static_cast<std::size_t>(fd);
  if (index >= slots_.size()) slots_.resize(index + 1);
  auto& slot = slots_[index];
  epoll_event event{.events = events, .data = {.u64 = tag(fd, slot.generation)}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
    return util::fail_errno("event loop: epoll_ctl");
  slot.callback = std::move(callback);
  slot.used = true;
  return {};
}

void EventLoop::set_events(int fd, std::uint32_t events) {
  const auto& slot = slots_[static_cast<std::size_t>(fd)];
  assert(slot.used);
  epoll_event event{.events = events, .data = {.u64 = tag(fd, slot.generation)}};
  [[maybe_unused]] const auto set = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  assert(set == 0);
}

void EventLoop::remove(int fd) {
  const auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= slots_.size() || !slots_[index].used) return;
  auto& slot = slots_[index];
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  slot.used = false;
  ++slot.generation;
  slot.callback = nullptr;
}

/// Sets the timer only to an earlier time than the current one. So a sleep needs no further system
/// call while deadlines move on; a timer that expires too early costs only an empty turn.
void EventLoop::set_timer(util::Time at) {
  if (at >= timer_at_) return;
  timer_at_ = at;
  const auto since = at.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const itimerspec when{
      .it_interval = {},
      .it_value = {.tv_sec = seconds.count(), .tv_nsec = (since - seconds).count()}};
  [[maybe_unused]] const auto set = ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  assert(set == 0);
}

void EventLoop::collect(util::Time until) {
  // A deadline in the past is a poll, and Time::min() needs no read of the clock.
  const bool poll = noticed_.load(std::memory_order_relaxed) || until == util::Time::min() ||
                    (until != util::kNever && until <= util::monotonic_now());
  if (!poll) set_timer(until);
  next_event_ = 0;
  end_event_ = std::max(0, ::epoll_wait(epoll_, events_.data(), kEventsPerTurn, poll ? 0 : -1));
}

unsigned EventLoop::run_once(util::Time until) {
  thread_.store(&thread_mark, std::memory_order_relaxed);
  if (next_event_ == end_event_) collect(until);
  budget_ = util::WorkBudget(kTurnWork);
  if (noticed_.load(std::memory_order_relaxed)) call_notices();
  unsigned called = 0;
  // One event in any case: notices that always find work would shut out all events.
  const int first = next_event_;
  while (next_event_ != end_event_ && (next_event_ == first || !budget_.spent())) {
    called += call(events_[next_event_++]);
  }
  return called;
}

bool EventLoop::call(const epoll_event& event) {
  const auto fd = static_cast<std::uint32_t>(event.data.u64);
  // no format: the loop's own packing, tag()
  const auto generation = static_cast<std::uint32_t>(event.data.u64 >> 32);
  if (!slots_[fd].used || slots_[fd].generation != generation) return false;
  // A callback may add descriptors and so move the slots. It is called from a local variable, and
  // moved back unless it was removed meanwhile.
  auto callback = std::move(slots_[fd].callback);
  attempt([&] { callback(event.events); });
  if (slots_[fd].used && slots_[fd].generation == generation) {
    slots_[fd].callback = std::move(callback);
  }
  if (fd == static_cast<std::uint32_t>(timer_)) return false;
  last_called_ = fd;
  return true;
}

EventLoop::Notice::Notice(EventLoop& loop, std::function<void()> callback)
    : loop_(loop), callback_(std::move(callback)) {
  loop_.notices_.push_back(this);
}

EventLoop::Notice::~Notice() { std::erase(loop_.notices_, this); }

void EventLoop::Notice::raise() {
  raised_.store(true);
  loop_.noticed_.store(true);
  if (loop_.thread_.load(std::memory_order_relaxed) != &thread_mark) loop_.wake();
}

void EventLoop::call_notices() {
  // One that is raised meanwhile sets it again.
  noticed_.store(false);
  for (auto* notice : notices_) {
    if (notice->raised_.exchange(false)) attempt(notice->callback_);
  }
}

void EventLoop::wake() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the loop wakes anyway.
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

util::Result<void> EventLoop::stop_on_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  if (const auto error = ::pthread_sigmask(SIG_BLOCK, &set, &signals_before_); error != 0) {
    errno = error;
    return util::fail_errno("event loop: pthread_sigmask");
  }
  signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0) return util::fail_errno("event loop: signalfd");
  return add(signals_, EPOLLIN, [this](std::uint32_t) {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    }
    stop();
  });
}

void EventLoop::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  wake();
}

}  // namespace softhca::os
