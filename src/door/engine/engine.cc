#include "door/engine/engine.h"

#include <net/if.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <mutex>
#include <optional>

#include "door/memory/fault_guard.h"
#include "door/memory/reserve.h"
#include "door/process/own_calls.h"
#include "util/clock.h"
#include "uverbs/pinning.h"

namespace softhca::door {
namespace {

/// Interval between polls for an answer of the network.
constexpr auto kResolvingNap = std::chrono::microseconds(50);

/// A raw system call, which is no cancellation point: Linux's uverbs commands are none either.
void nap_in_call() {
  const timespec time{.tv_sec = 0, .tv_nsec = kResolvingNap / std::chrono::nanoseconds(1)};
  (void)::syscall(SYS_nanosleep, &time, nullptr);
}

/// Checks for process_vm_readv: a container's seccomp filter from before 2020 may forbid it.
util::Result<void> check_copies() {
  const std::byte there{1};
  std::byte copy{};
  const auto address = reinterpret_cast<std::uint64_t>(&there);
  if (uverbs::OwnMemory().read(address, {&copy, 1}) && copy == there) return {};
  return util::fail_errno(
      "process_vm_readv, by which the device reads requests, is forbidden here (see the seccomp "
      "profile of the container)");
}

}  // namespace

util::Result<std::unique_ptr<Engine>> Engine::create(const Options& options) {
  keep_reserve();
  std::unique_ptr<Engine> engine(new Engine(options));
  catch_faults();
  if (auto good = check_copies(); !good) return tl::unexpected(good.error());
  if (auto good = engine->state_.waker().set_up(); !good) return tl::unexpected(good.error());
  if (!options.control.empty()) engine->questions_.listen(options.control);
  if (auto good = engine->thread_.start(); !good) return tl::unexpected(good.error());
  return engine;
}

int Engine::open(unsigned uverbs) {
  auto& cards = state_.cards();
  const auto place = cards.place_of(uverbs);
  if (!cards.make(place)) return place < cards.count() ? -EIO : -ENODEV;
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  state_.note_call();
  state_.drop_closed();
  return state_.files().open(*cards.find(place), place, uverbs);
}

bool Engine::is_context(int fd) const {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && owner(status.st_dev, status.st_ino);
}

bool Engine::serve(int fd, void* argument, int& result) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !owner(status.st_dev, status.st_ino)) return false;
  // Pinning may take long: do it before taking the lock.
  const uverbs::PinnedAhead pinned(
      state_.files().memory(), reinterpret_cast<std::uint64_t>(argument),
      [this, &status](std::uint32_t handle) -> std::optional<std::uint32_t> {
        const std::lock_guard held(lock_);
        const auto* const context = state_.files().find(status.st_dev, status.st_ino);
        return context == nullptr ? std::nullopt : context->region_access(handle);
      });
  Resolution resolution;
  if (!serve_once(status.st_dev, status.st_ino, argument, resolution, result)) return false;
  if (!resolution.wanted()) return true;
  resolve(resolution);
  resolution.begin_again();
  return serve_once(status.st_dev, status.st_ino, argument, resolution, result);
}

bool Engine::serve_once(dev_t device, ino_t inode, void* argument, Resolution& resolution,
                        int& result) {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  auto* const context = state_.files().find(device, inode);
  if (context == nullptr) return false;
  state_.note_call();
  (void)state_.turn();
  {
    const auto in_use = state_.cards().resolve_by(resolution);
    result = -context->serve(reinterpret_cast<std::uint64_t>(argument));
  }
  (void)state_.turn();
  state_.waker().wake_sleeper();
  return true;
}

void Engine::resolve(Resolution& resolution) {
  const auto to = *resolution.wanted();
  auto& cards = state_.cards();
  cards.make_owners_of(to);
  for (;; nap_in_call()) {
    const std::lock_guard held(lock_);
    const FaultGuard guard;
    (void)state_.turn();
    driver::Mac mac;
    if (cards.find_present(to, mac)) return;
    const auto step = resolution.step(util::monotonic_now());
    if (step == Resolution::Step::kGiveUp) return cards.warn_if_foreign(to);
    if (step == Resolution::Step::kAsk) cards.ask(to);
  }
}

bool Engine::progress() {
  if (lock_.is_wanted()) return true;
  // Before the lock: a handler of a signal in between finds the thread marked.
  const OwnCalls own;
  const FaultGuard guard;
  if (!lock_.try_lock()) return false;
  const std::lock_guard held(lock_, std::adopt_lock);
  state_.turn_of_poll();
  return true;
}

void Engine::take_arms(bool in_handler) {
  if (!in_handler) {
    lock_.lock();
  } else if (!hold()) {
    return;
  }
  const std::lock_guard held(lock_, std::adopt_lock);
  const FaultGuard guard;
  state_.take_arms();
}

void Engine::note_closed() {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  state_.drop_closed();
  state_.files().for_each([](uverbs::Context& context) { context.drop_closed(); });
  // Stop watching doorbell pages of destroyed contexts soon.
  state_.waker().wake_sleeper();
}

bool Engine::find_gid(unsigned number, std::size_t index, std::optional<uverbs::GidEntry>& entry,
                      std::string& interface) {
  auto& cards = state_.cards();
  const auto place = cards.place_of(number);
  if (!cards.make(place)) return false;
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  auto& device = cards.find(place)->device();
  const auto* gid = device.gid(index);
  entry = gid == nullptr ? std::nullopt : std::optional(*gid);
  std::array<char, IF_NAMESIZE> name{};
  if (::if_indextoname(device.options().interface_index, name.data()) != nullptr) {
    interface = name.data();
  }
  return true;
}

bool Engine::has_lost_link(unsigned number) {
  auto& cards = state_.cards();
  const std::lock_guard held(lock_);
  const auto* const card = cards.find(cards.place_of(number));
  return card != nullptr && !card->has_link();
}

void Engine::publish_counters() {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  state_.publish_counters();
}

void Engine::leave_to_parent() {
  state_.leave_to_parent();
  questions_.leave_to_parent();
}

void Engine::stop() {
  thread_.stop();
  // exit() in a signal handler: the interrupted code may hold the lock.
  if (FaultGuard::exists()) return;
  const OwnCalls own;
  if (!hold()) return;
  const std::lock_guard held(lock_, std::adopt_lock);
  const FaultGuard guard;
  state_.publish_counters();
  if (!state_.channels().disconnect_all()) return;
  state_.cards().for_each([](Card& card) { card.hurry(); });
  (void)state_.turn();
  (void)state_.turn();
}

}  // namespace softhca::door
