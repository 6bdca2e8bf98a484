#include "door/kernel.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "door/engine/engine.h"
#include "door/inline_progress.h"
#include "door/memory/doorbell_traps.h"
#include "door/memory/fault_guard.h"
#include "door/memory/reserve.h"
#include "door/process/own_calls.h"
#include "door/process/standard_error.h"
#include "door/process/without_exceptions.h"
#include "door/tree/tree.h"
#include "door/variables.h"
#include "os/kept_descriptors.h"
#include "os/known_files.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// Never destroyed: the program may use the device until its very end.
std::atomic<Engine*> made_engine = nullptr;
/// The same for polls. They are not served while the process ends and the engine disconnects.
std::atomic<Engine*> polled = nullptr;
std::timed_mutex making;

/// How long fork() waits for a thread that is halfway through a call.
constexpr auto kForkPatience = std::chrono::milliseconds(100);

/// The locks that this thread holds around fork().
struct ForkHolds {
  unsigned depth = 0;   ///< of fork() in handlers of fork(); 0: not between the door's handlers
  ::pid_t process = 0;  ///< that calls the outermost fork()
  bool making = false;
  Engine* engine = nullptr;
};
/// Initial-exec: other TLS models may allocate on first access.
[[gnu::tls_model("initial-exec")]] constinit thread_local ForkHolds fork_holds;

// A signal handler may interrupt the next two functions. The locks that fork_holds names are locked
// at any time. The handler's calls do not wait for the others (OwnCalls).

void lock_for_fork() {
  const OwnCalls own;
  fork_holds.making = making.try_lock_for(kForkPatience);
  auto* const made = made_engine.load();
  if (made != nullptr && made->hold()) fork_holds.engine = made;
}

void unlock_for_fork() {
  const OwnCalls own;
  if (auto* const made = std::exchange(fork_holds.engine, nullptr)) made->release();
  if (std::exchange(fork_holds.making, false)) making.unlock();
}

/// Waits until no thread is halfway through a call, so that the child's copy shows none. A signal
/// handler that has interrupted the door must not wait for itself, nor a handler of fork() that
/// forks.
void hold_for_fork() {
  if (fork_holds.depth == 0) fork_holds.process = ::getpid();
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a handler needs both
  if (fork_holds.depth++ != 0) return;
  if (!FaultGuard::exists()) lock_for_fork();
}

void release_after_fork() {
  if (fork_holds.depth != 0 && --fork_holds.depth == 0) unlock_for_fork();
}

/// The child has the parent's descriptors and memory, but not its thread. It creates an engine of
/// its own. If a handler of another library has done so, ForkPause has called this function before.
void forget_in_child() {
  const bool again = std::exchange(fork_holds.depth, 0u) == 0;
  // Another thread has kept the lock for longer than fork() waits. It is not in the child, and
  // never unlocks it. A signal handler that has interrupted the lock's own thread finds the devices
  // busy instead.
  const bool is_stuck = !again && !fork_holds.making && !OwnCalls::exist();
  unlock_for_fork();
  if (is_stuck) std::construct_at(&making);
  const OwnCalls own;
  const auto* const made = made_engine.load();
  if (again && made != nullptr && made->is_of_this_process()) return;
  polled = nullptr;
  if (auto* const parents = made_engine.exchange(nullptr); parents != nullptr) {
    (void)without_exceptions([parents] {
      parents->leave_to_parent();
      return 0;
    });
  }
  keep_standard_error_in_child();
  leave_doorbell_traps_to_parent();
  os::close_all_kept();
}

/// Runs before the program can have a thread in its first open().
[[gnu::constructor]] void prepare_for_forks() {
  ::pthread_atfork(hold_for_fork, release_after_fork, forget_in_child);
}

/// Runs before the program can open files.
[[gnu::constructor]] void choose_log_sink() {
  const int before = errno;
  note_standard_error();
  util::set_log_sink(write_to_standard_error);
  errno = before;
}

/// Reports each mistake once, however often the program opens a device.
void report(const std::vector<std::string>& mistakes) {
  static bool reported = false;
  if (std::exchange(reported, true)) return;
  for (const auto& one : mistakes) util::log(util::LogLevel::kWarning, "{}", one);
}

Engine* make() {
  const std::lock_guard held(making);
  if (auto* made = made_engine.load(); made != nullptr) return made;
  const char* directory = std::getenv("SOFTHCA_DOOR");
  if (directory == nullptr) return nullptr;
  auto variables = read_variables(std::getenv);
  // Standard error belongs to the program: the user may limit the library's lines there.
  util::set_log_level(variables.log_level);
  std::ranges::move(mistyped_names(environ), std::back_inserter(variables.mistakes));
  report(variables.mistakes);
  auto made =
      Engine::create({.cards = {.directory = directory,
                                .numbers = variables.numbers,
                                .addresses = std::move(variables.addresses),
                                .loss = variables.loss,
                                .faults = variables.faults},
                      .files = {.beyond_memlock = variables.enforces_memlock
                                                      ? uverbs::LockedMemory::Beyond::kRefusal
                                                      : uverbs::LockedMemory::Beyond::kWarning,
                                .made_cq = wrap_poll},
                      .control = std::move(variables.control),
                      .traps_doorbells = variables.traps_doorbells});
  if (!made) {
    util::log(util::LogLevel::kError, "{}", made.error().message);
    return nullptr;
  }
  made_engine = made->release();
  polled = made_engine.load();
  return made_engine;
}

[[gnu::destructor]] void stop_at_exit() {
  auto* const made = made_engine.load();
  if (made == nullptr || !made->is_of_this_process()) return;
  polled = nullptr;
  (void)without_exceptions([made] {
    made->stop();
    return 0;
  });
  polled = made;  // polls also serve destructors of other libraries
}

}  // namespace

Engine* engine_of_process() { return make(); }
Engine* engine_if_made() { return made_engine.load(); }

ForkPause::ForkPause() {
  if (fork_holds.depth == 0) return;
  // Even if the parent has no engine: what the child makes now is its own.
  if (fork_holds.process != ::getpid()) forget_in_child();
  pauses_ = fork_holds.making || fork_holds.engine != nullptr;
  if (pauses_) unlock_for_fork();
}

ForkPause::~ForkPause() {
  if (pauses_) lock_for_fork();
}

namespace {

/// A poll in a handler of fork(): this thread has the lock.
[[gnu::noinline]] void progress_in_fork() {
  const ForkPause pause;
  if (auto* const made = polled.load(); made != nullptr) (void)made->progress();
}

}  // namespace

void progress_in_call() {
  auto* const made = polled.load(std::memory_order_acquire);
  if (made == nullptr || !hold_reserve()) return;
  (void)without_exceptions([made] {
    if (!made->progress() && fork_holds.depth != 0) progress_in_fork();
    return 0;
  });
}

int open_uverbs(unsigned number, int) {
  const ForkPause pause;
  return without_exceptions([number] {
    if (!hold_reserve()) return -ENOMEM;
    auto* const made = make();
    return made == nullptr ? -EIO : made->open(number);
  });
}

namespace {

std::atomic<bool> channels = false;
/// Protected by `making`.
constinit os::KnownFiles known_channels;

/// Records the channel behind `fd`, and forgets closed ones.
void note_channel(Engine& made, int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return;
  const std::lock_guard held(making);
  known_channels.remove_if([&](auto dev, auto inode) { return !made.owns_channel(dev, inode); });
  known_channels.add(status.st_dev, status.st_ino, 0);
}

}  // namespace

int open_rdma_cm() {
  const ForkPause pause;
  return without_exceptions([] {
    if (!hold_reserve()) return -ENOMEM;
    auto* const made = make();
    if (made == nullptr) return -EIO;
    channels.store(true, std::memory_order_relaxed);
    const int fd = made->open_rdma_cm();
    if (fd >= 0) note_channel(*made, fd);
    return fd;
  });
}

void note_closed() {
  const ForkPause pause;
  auto* const made = made_engine.load();
  if (made == nullptr) return;
  (void)without_exceptions([made] {
    made->note_closed();
    return 0;
  });
}

void take_arms_in_call() {
  if (FaultGuard::exists()) return;
  const ForkPause pause;
  auto* const made = made_engine.load();
  if (made == nullptr) return;
  const bool in_handler = OwnCalls::exist();
  const OwnCalls own;
  (void)without_exceptions([made, in_handler] {
    made->take_arms(in_handler);
    return 0;
  });
}

void prepare_for_cancels() {
  expect_cancels();
  const ForkPause pause;
  auto* const made = made_engine.load();
  // A thread that holds the lock may have made its guard before expect_cancels().
  if (made != nullptr && made->hold()) made->release();
}

bool shares_memory_of_another() {
  auto* const made = made_engine.load();
  return made != nullptr && !made->is_of_this_process();
}

bool has_channels() { return channels.load(std::memory_order_relaxed); }

bool serve_write(int fd, const void* bytes, std::size_t size, ssize_t& result) {
  const ForkPause pause;
  auto* const made = made_engine.load();
  struct stat status{};
  if (made == nullptr || ::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode) ||
      !known_channels.find(status.st_dev, status.st_ino)) {
    return false;
  }
  bool served = true;
  const int wrong = without_exceptions([&] {
    if (!hold_reserve()) return -ENOMEM;
    served = made->serve_rdma_cm(fd, bytes, size, result);
    return 0;
  });
  if (wrong != 0) result = wrong;
  return served;
}

std::uint64_t device_of_channel(dev_t dev, ino_t inode) {
  return made_engine.load() != nullptr && known_channels.find(dev, inode)
             ? ::makedev(kRdmaCmMajor, kRdmaCmMinor)
             : 0;
}

std::uint64_t device_of(dev_t dev, ino_t inode) {
  auto* made = made_engine.load();
  const auto number = made == nullptr ? std::nullopt : made->owner(dev, inode);
  return number ? ::makedev(kUverbsMajor, kUverbsMinor + *number) : 0;
}

bool serve_ioctl(int fd, void* argument, int& result) {
  const ForkPause pause;
  auto* const made = made_engine.load();
  if (made == nullptr) return false;
  bool served = true;
  const int wrong = without_exceptions([&] {
    const bool may_begin = hold_reserve();
    if (!may_begin && made->is_context(fd)) return -ENOMEM;
    served = may_begin && made->serve(fd, argument, result);
    return 0;
  });
  if (wrong != 0) result = wrong;
  return served;
}

}  // namespace softhca::door
