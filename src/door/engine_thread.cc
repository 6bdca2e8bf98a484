// The engine's thread drives the devices when no call of the program does. It polls often while
// there is work, and sleeps while there is none.
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "door/doorbell_traps.h"
#include "door/engine.h"
#include "door/fault_guard.h"
#include "door/interpose.h"
#include "door/reserve.h"
#include "door/without_exceptions.h"
#include "vfio_user/event_signal.h"

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

/// Idle time after which polling stops.
constexpr util::Duration kCalm = 50ms;
/// After this many packets in a turn a long message is in progress: keep polling for kLinger
/// instead of sleeping.
constexpr std::size_t kManyPackets = 16;
constexpr util::Duration kLinger = 50us;
/// Shortest time to the next event for which the thread arms traps and sleeps.
constexpr util::Duration kRestMin = 20ms;
/// Source of looks_on_: any message draws an answer soon if the program polls its memory.
constexpr unsigned kAnything = 0;
/// Nap while the program's own polls drive the devices: at least kCallsMin of them in this time.
constexpr util::Duration kNapBesideCalls = 1ms;
constexpr std::uint64_t kCallsMin = 100;
/// How long the thread polls by itself after there were fewer calls: minimum, maximum.
constexpr util::Duration kDistrustMin = 20ms;
constexpr util::Duration kDistrustMax = 1s;
/// Interval between polls while awake.
constexpr util::Duration kNapMin = 20us;
constexpr util::Duration kNapMax = 1ms;
/// Interval between polls of a sleeping thread, and between attempts to sleep.
constexpr util::Duration kRestMax = 1s;

/// More threads per processor than this are a crowd. A nap then grows with each of them, so that
/// polling stays a small part of the load.
constexpr unsigned kCrowd = 3;
constexpr util::Duration kNapPerThread = 500us;

/// Work for a part of an answer, during which calls of the program wait (util::WorkBudget).
constexpr std::int64_t kPieceOfAnswer = 25'000;

}  // namespace

util::Time Engine::next_event() const {
  auto next = rdma_cm_ == nullptr ? util::kNever : rdma_cm_->next_tick();
  for_each_card([&](const Card& card) { next = std::min(next, card.next()); });
  return next;
}

void Engine::collect_wakes() {
  wakes_.clear();
  const auto add = [this](int fd) {
    if (fd >= 0) wakes_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  };
  add(poke_.get());
  for_each_card([&](const Card& card) { add(card.wake()); });
  eventfds_ = wakes_.size();
  for_each_card([&](const Card& card) { add(card.host_changes()); });
  if (control_) {
    wakes_.push_back({.fd = control_->fd(), .events = control_->events(), .revents = 0});
  }
}

bool Engine::wait(util::Duration longest) {
  const timespec timeout{.tv_sec = longest / 1s, .tv_nsec = (longest % 1s) / 1ns};
  const bool any = ::ppoll(wakes_.data(), wakes_.size(), &timeout, nullptr) > 0;
  if (control_ && control_->is_overdue(util::monotonic_now())) is_asked_ = true;
  if (!any) return is_asked_;
  for (std::size_t i = 0; i != wakes_.size(); ++i) {
    if (wakes_[i].revents == 0) continue;
    if (i < eventfds_) {
      vfio_user::EventSignal::drain(wakes_[i].fd);  // that of a card is shared with its peers
    } else if (control_ && wakes_[i].fd == control_->fd()) {
      is_asked_ = true;
    } else {
      host_has_changed_ = true;
    }
  }
  return true;
}

/// Lengthens a nap on a crowded machine: otherwise fruitless polling would be most of the load. The
/// peers wait for a processor anyway.
util::Duration Engine::in_crowd(util::Duration nap) const {
  return processors_.crowd() > kCrowd ? std::max(nap, kNapPerThread * processors_.crowd()) : nap;
}

/// Time until the next poll of the records if nothing comes before. It is short at first.
util::Duration Engine::nap(unsigned idle_turns) const {
  // Without doorbells it doubles each time, so that the thread comes to rest.
  const auto longest =
      !has_queues_ ? std::min(util::Duration(kRestMax), kNapMin * (1u << std::min(idle_turns, 16u)))
                   : in_crowd(std::min(kNapMax, kNapMin * (1u + idle_turns / 16)));
  // Do not oversleep timers.
  const auto now = util::monotonic_now();
  return next_event_ < now + longest ? std::max(next_event_ - now, kNapMin) : longest;
}

bool Engine::look(bool& sleeps) {
  if (std::exchange(host_has_changed_, false)) follow_host();
  const bool busy = turn();
  if (const auto now = util::monotonic_now(); now - last_look_ > 1s) {
    last_look_ = now;
    drop_closed();
    look_at_hubs();
    follow_host();  // retries an update that was not possible before
    for_each_card([](Card& card) { card.free_idle_pages(); });
    publish_counters_locked();
    for (auto& [inode, file] : files_) {
      file.context->tell_clock();
      file.context->drop_closed();
    }
  }
  const auto now = util::monotonic_now();
  if (received_ >= kManyPackets) lingers_until_ = now + kLinger;
  if (busy && !program_polls_ && processors_.any()) looks_on_.message(kAnything, now);
  sleeps = !busy && now >= lingers_until_ && !looks_on_.look(now);
  has_queues_ = false;
  for_each_card([&](Card& card) {
    card.set_crowd(processors_.crowd());
    sleeps = sleeps && (program_polls_ || card.prepare_to_sleep());
    has_queues_ |= !card.device().records().empty();
  });
  next_event_ = next_event();
  collect_wakes();
  return busy;
}

bool Engine::rest() {
  bool sleeps = false;
  std::uint64_t calls = 0;
  {
    const std::lock_guard held(lock_);
    if (next_event() < util::monotonic_now() + kRestMin) return false;
    calls = calls_;
  }
  // Without the lock: this takes milliseconds if the process has many threads and mappings.
  if (!arm_doorbell_traps(is_ours_, poke_.get())) return false;
  {
    const std::lock_guard held(lock_);
    (void)look(sleeps);
    // A queue created meanwhile may have a page without a trap.
    sleeps = sleeps && calls == calls_;
    sleeps_long_ = true;
  }
  while (sleeps) {
    util::Duration longest = kRestMax;
    {
      const std::lock_guard held(lock_);
      longest = std::clamp<util::Duration>(next_event() - util::monotonic_now(), 0s, kRestMax);
    }
    if (wait(longest)) break;
    processors_.look(util::monotonic_now());
    const std::lock_guard held(lock_);
    if (stopping_) return true;
    (void)look(sleeps);
  }
  {
    const std::lock_guard held(lock_);
    sleeps_long_ = false;
    (void)look(sleeps);  // serve it first: disarming takes longer
  }
  disarm_doorbell_traps(is_ours_);
  return true;
}

void Engine::work() {
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
    ::usleep(kNapMax / 1us);
    (void)without_exceptions([this] {
      disarm_doorbell_traps(is_ours_);  // the exception may have come while traps were armed
      return 0;
    });
  }
}

void Engine::look_after_devices() {
  const bool traps = options_.traps_doorbells;
  unsigned idle = 0;
  std::uint64_t turns_seen = 0;
  util::Time trusts_from{};
  auto distrust = kDistrustMin;
  bool has_polled = false;
  auto calm_since = util::monotonic_now();
  for (;;) {
    if (!hold_reserve()) throw std::bad_alloc();
    if (std::exchange(is_asked_, false)) answer_questions();
    processors_.look(util::monotonic_now());
    bool sleeps = true;
    {
      const std::lock_guard held(lock_);
      if (stopping_) return;
      // A program that polls drives its device itself: frames need not wake this thread, and its
      // doorbells should not be trapped.
      const auto turns = inline_turns_.load(std::memory_order_relaxed);
      has_polled = turns != turns_seen;
      program_polls_ = has_polled && util::monotonic_now() >= trusts_from;
      turns_seen = turns;
      idle = look(sleeps) ? 0 : idle + 1;
      sleeps_long_ = sleeps && nap(idle) > kNapMax;
    }
    const auto now = util::monotonic_now();
    if (idle == 1 || has_polled) calm_since = now;
    if (program_polls_) {
      (void)wait(in_crowd(kNapBesideCalls));
      // Few polls may mean that the program only waits for its memory to change, or that it gets no
      // processor.
      if (processors_.crowd() <= kCrowd &&
          inline_turns_.load(std::memory_order_relaxed) - turns_seen < kCallsMin) {
        trusts_from = util::monotonic_now() + distrust;
        distrust = std::min(2 * distrust, kDistrustMax);
      } else {
        distrust = kDistrustMin;
      }
      continue;
    }
    if (!sleeps) {
      if (idle != 0) ::sched_yield();
      continue;
    }
    if (traps && has_queues_ && now - calm_since > kCalm) {
      if (rest()) {
        idle = 0;
      } else {
        calm_since = now + kRestMax;
      }
      continue;
    }
    if (!has_queues_) forget_doorbell_traps();
    if (wait(nap(idle))) idle = 0;
  }
}

/// Answers in parts. In between the devices work, and calls of the program run.
void Engine::answer_questions() {
  control_->serve([this](const ControlPoint::Question& question) {
    util::Inspection inspection(question.function.empty() ? "softhca" : question.function,
                                question.show);
    bool known = false;
    for (bool done = false; !done;) {
      const std::lock_guard held(lock_);
      (void)turn();
      util::WorkBudget work(kPieceOfAnswer);
      done = inspection.go_on(work, [&](util::Inspection& out) {
        for_each_card([&](const Card& card) {
          const auto& model = card.model();
          if (question.function.empty()) {
            out.group(model.name(), [&] { model.inspect(out); });
          } else if (question.function == model.name()) {
            known = true;
            model.inspect(out);
          }
        });
        known = rdma_cm::inspect(rdma_cm_.get(), question.function, out) || known;
      });
    }
    return known ? "ok\n" + inspection.finish()
                 : fmt::format("error: there is no function '{}'\n", question.function);
  });
}

}  // namespace softhca::door
