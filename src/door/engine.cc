#include "door/engine.h"

#include <fmt/format.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <bitset>
#include <cerrno>
#include <csignal>
#include <new>
#include <optional>
#include <system_error>

#include "door/addresses.h"
#include "door/fault_guard.h"
#include "door/interpose.h"
#include "door/reserve.h"
#include "door/stand_ins.h"
#include "door/tree/tree.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/memory_faults.h"
#include "uverbs/pinning.h"
#include "vfio_user/kept_fd.h"

namespace softhca::door {
namespace {

/// How long the end of the process, or a fork, waits for a thread that is halfway through a call.
constexpr auto kPatienceAtEnd = std::chrono::milliseconds(100);

/// Memory that a device takes, and some more: without it, a half-made device cannot be destroyed.
constexpr std::size_t kCardMemory = std::size_t{64} << 20;

void write_one(int eventfd) {
  const std::uint64_t one = 1;
  (void)!::write(eventfd, &one, sizeof one);
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

util::Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  keep_reserve();
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  catch_faults();
  if (auto good = check_copies(); !good) return tl::unexpected(good.error());
  if (auto good = engine->set_up(); !good) return tl::unexpected(good.error());
  const SignalsBlocked blocked;
  try {
    std::thread(&Engine::work, engine.get()).detach();
  } catch (const std::system_error& error) {
    return util::fail(
        fmt::format("no thread for the devices (see ulimit -u, pids.max): {}", error.what()));
  }
  return engine;
}

util::Result<void> Engine::set_up() {
  poke_ = vfio_user::keep(vfio_user::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!poke_) return util::fail_errno("eventfd (see ulimit -n)");
  if (options_.control.empty()) return {};
  auto control = ControlPoint::create(options_.control);
  if (control) {
    control_.emplace(*std::move(control));
  } else {
    util::log(util::LogLevel::kWarning, "softhca inspect does not find this process: {}",
              control.error().message);
  }
  return {};
}

bool Engine::make_card(unsigned place) {
  if (place >= cards_.size()) return false;
  const FaultGuard guard;
  const std::lock_guard making(making_card_);
  {
    const std::lock_guard held(lock_);
    if (cards_[place] != nullptr) return true;
  }
  const auto number = options_.numbers.first + place;
  if (!has_room(kCardMemory)) {
    util::log(util::LogLevel::kError, "mlx5_{}: no memory for it (see ulimit -v)", number);
    throw std::bad_alloc();
  }
  const auto& addresses = options_.addresses;
  auto made = Card::create(
      {.directory = options_.directory,
       .number = number,
       .address = place < addresses.size() ? addresses[place] : std::string(),
       .loss = options_.loss,
       .find_mac = [this](const auto& to, auto& mac) { return find_mac(to, mac); },
       .want_mac =
           [this](const auto& to) { return resolution_ != nullptr && resolution_->want(to); }});
  if (!made) {
    util::log(util::LogLevel::kError, "mlx5_{}: {}", number, made.error().message);
    return false;
  }
  const std::lock_guard held(lock_);
  cards_[place] = *std::move(made);
  poke();  // the thread must wait for this card too
  return true;
}

bool Engine::is_context(int fd) const {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && known_files_.find(status.st_dev, status.st_ino);
}

bool Engine::serve(int fd, void* argument, int& result) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !known_files_.find(status.st_dev, status.st_ino)) return false;
  // Pinning may take long: do it before taking the lock.
  const uverbs::PinnedAhead pinned(
      memory_, reinterpret_cast<std::uint64_t>(argument),
      [this, &status](std::uint32_t handle) -> std::optional<std::uint32_t> {
        const std::lock_guard held(lock_);
        const auto at = files_.find(status.st_ino);
        if (at == files_.end()) return std::nullopt;
        return at->second.context->region_access(handle);
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
  const auto at = files_.find(inode);
  if (at == files_.end() || at->second.file.device() != device) return false;
  ++calls_;
  (void)turn();
  {
    const Resolution::InUse in_use(resolution_, resolution);
    result = -at->second.context->serve(reinterpret_cast<std::uint64_t>(argument));
  }
  (void)turn();
  if (sleeps_long_) poke();
  return true;
}

bool Engine::progress() {
  if (waiters_.load(std::memory_order_relaxed) != 0) return true;
  // Before the lock: a handler of a signal in between finds the thread marked.
  const OwnCalls own;
  const FaultGuard guard;
  if (!lock_.try_lock()) return false;
  const std::lock_guard held(lock_, std::adopt_lock);
  const auto count = inline_turns_.fetch_add(1, std::memory_order_relaxed);
  (void)turn(count % kWholeTurn == 0 ? Turn::kWhole : Turn::kSparing);
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
  for_each_card([](Card& card) { (void)card.device().records().scan(); });
}

/// In a sparing turn idle devices are skipped, so polling one does not pay for all.
bool Engine::turn(Turn how) {
  const bool spares = how == Turn::kSparing && cards_.size() > 1;
  const auto now = spares ? util::monotonic_now() : util::Time{};
  std::bitset<kUverbsCount> quiet;
  unsigned place = 0;
  bool busy = false;
  received_ = 0;
  for_each_card([&](Card& card) {
    const auto received = card.receive();
    const bool rung = card.device().records().scan();
    received_ += received;
    busy |= rung;
    quiet[place] = spares && received == 0 && !rung && card.is_quiet(now);
    if (!quiet[place++]) card.progress();
  });
  busy |= received_ != 0;
  if (util::MemoryFaults::pending()) busy |= handle_faults();
  place = 0;
  for_each_card([&](Card& card) {
    if (quiet[place++]) return;
    card.settle();
    busy |= card.device().poll_events();
    busy |= card.has_work();
  });
  for (auto& [inode, file] : files_) file.context->flush_events();
  if (rdma_cm_ != nullptr) rdma_cm_->tick(util::monotonic_now());
  if (OpenedPages::any()) OpenedPages::close();
  return busy;
}

void Engine::follow_host() {
  for (unsigned number = 0; number != cards_.size(); ++number) {
    // One event for each changed entry, as on Linux.
    const auto changes = cards_[number] == nullptr ? 0 : cards_[number]->follow_host();
    for (auto& [inode, file] : files_) {
      for (unsigned i = 0; file.card == number && i != changes; ++i) {
        file.context->tell_gid_change();
      }
    }
  }
}

void Engine::look_at_hubs() {
  for (unsigned number = 0; number != cards_.size(); ++number) {
    if (cards_[number] == nullptr || !cards_[number]->see_hub_go()) continue;
    for (auto& [inode, file] : files_) {
      if (file.card == number) file.context->tell_port_error();
    }
  }
}

bool Engine::find_gid(unsigned number, std::size_t index, std::optional<uverbs::GidEntry>& entry,
                      std::string& interface) {
  const auto place = number - options_.numbers.first;
  if (!make_card(place)) return false;
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  auto& device = cards_[place]->device();
  const auto* gid = device.gid(index);
  entry = gid == nullptr ? std::nullopt : std::optional(*gid);
  std::array<char, IF_NAMESIZE> name{};
  if (::if_indextoname(device.options().interface_index, name.data()) != nullptr) {
    interface = name.data();
  }
  return true;
}

bool Engine::has_lost_link(unsigned number) {
  const auto place = number - options_.numbers.first;
  const std::lock_guard held(lock_);
  return place < cards_.size() && cards_[place] != nullptr && !cards_[place]->has_link();
}

void Engine::publish_counters() {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  publish_counters_locked();
}

void Engine::publish_counters_locked() {
  for_each_card([](Card& card) { card.publish_counters(); });
}

void Engine::leave_to_parent() {
  for_each_card([](Card& card) { card.leave_to_parent(); });
  if (port_file_) port_file_->leave_to_parent();
  control_.reset();
}

/// Handles program memory that was missing when the device accessed it.
bool Engine::handle_faults() {
  for (const auto& fault : noted_faults()) {
    for (auto& [inode, file] : files_) {
      file.context->lose_memory(fault.address, fault.was_write);
    }
  }
  release_faults();
  return true;
}

bool Engine::hold() {
  const OwnCalls own;
  ++waiters_;
  const bool held = lock_.try_lock_for(kPatienceAtEnd);
  --waiters_;
  return held;
}

void Engine::poke() { write_one(poke_.get()); }

void Engine::stop() {
  stopping_ = true;
  // exit() in a signal handler: the interrupted code may hold the lock.
  if (FaultGuard::exists()) return;
  const OwnCalls own;
  if (!hold()) return;
  const std::lock_guard held(lock_, std::adopt_lock);
  const FaultGuard guard;
  publish_counters_locked();
  if (rdma_cm_ == nullptr) return;
  rdma_cm_->disconnect_all();
  for_each_card([](Card& card) { card.hurry(); });
  (void)turn();
  (void)turn();
}

}  // namespace softhca::door
