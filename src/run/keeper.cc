#include "run/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "os/alarm.h"
#include "os/descriptor_limit.h"
#include "os/file_size.h"
#include "os/foreign_bytes.h"
#include "os/process_descriptors.h"
#include "os/spare_descriptor.h"
#include "os/unix_socket.h"
#include "run/hub_host.h"
#include "run/run_bases.h"
#include "run/run_directory.h"
#include "run/trunk_options.h"
#include "util/log.h"

namespace softhca::run {
namespace {

using os::UniqueFd;
using namespace std::chrono_literals;

constexpr int kBacklog = 128;
/// Time for the run that started the keeper to connect.
constexpr auto kFirstPatience = 10s;
/// Wait for a stopped keeper without limit: a second one would split the fabric.
constexpr auto kNoLimit = util::Duration::zero();
/// Interval between attempts to end while another run holds the lock.
constexpr auto kBetweenTries = 50ms;
/// How a keeper's answer begins when it is ready; a notice may follow.
constexpr std::string_view kReady = "ready:";

std::string runs_socket(const std::string& directory) { return directory + "/runs"; }

class Keeper {
 public:
  explicit Keeper(std::string directory) : directory_(std::move(directory)) {}
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  util::Result<void> set_up(const FabricSetup& setup);
  /// See HubHost.
  util::Result<std::string> await_others() { return host_->await_others(); }
  void run() {
    while (!host_->events().stopped()) host_->events().run_once(util::kNever);
  }

 private:
  void accept();
  void leave(int run);
  void end_if_alone();

  const std::string directory_;
  UniqueFd kept_;  ///< locked directory: tmpfiles.d(5) then removes no old files in it
  std::optional<FabricLock> last_;  ///< held during destruction
  std::unique_ptr<HubHost> host_;
  UniqueFd listener_;
  os::SpareDescriptor spare_;
  std::vector<UniqueFd> runs_;
  os::Janitor janitor_;
  UniqueFd last_run_;  ///< kept open until everything is written and removed
  std::unique_ptr<os::Alarm> end_;
};

util::Result<void> Keeper::set_up(const FabricSetup& setup) {
  auto host = HubHost::create(directory_, setup);
  if (!host) return tl::unexpected(host.error());
  host_ = *std::move(host);
  kept_ = UniqueFd(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  (void)::flock(kept_.get(), LOCK_SH | LOCK_NB);
  auto& events = host_->events();
  if (auto signals = events.stop_on_signals(); !signals) return signals;
  auto alarm = os::Alarm::create(events, [this] { end_if_alone(); });
  if (!alarm) return tl::unexpected(alarm.error());
  end_ = *std::move(alarm);
  end_->set(util::monotonic_now() + kFirstPatience);
  auto bound = os::bind_unix(runs_socket(directory_), "fabric");
  if (!bound) return tl::unexpected(bound.error());
  listener_ = *std::move(bound);
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("fabric: listen");
  return events.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

/// After a signal it may end without the lock: the next run finds no keeper, and starts a new one.
Keeper::~Keeper() {
  if (!host_) return;
  for (const auto& run : runs_) host_->events().remove(run.get());
  if (listener_) host_->events().remove(listener_.get());
  end_.reset();
  host_.reset();
  if (!last_) last_ = FabricLock::try_to_take(directory_);
  if (!last_) return;
  remove_directory(directory_);
  last_->remove_file();
}

void Keeper::accept() {
  UniqueFd run(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!run && (errno == EMFILE || errno == ENFILE) && spare_.turn_away(listener_.get())) {
    util::log(util::LogLevel::kWarning, "fabric: a run is refused: no descriptors are left");
  }
  if (!run) return;
  const int fd = run.get();
  if (!host_->events().add(fd, EPOLLIN, [this, fd](std::uint32_t) { leave(fd); })) return;
  runs_.push_back(std::move(run));
  os::close_connection(std::move(last_run_), janitor_);
  end_->set(util::kNever);
}

/// Ends a run's membership: the run has ended, or has sent something, which no run does.
void Keeper::leave(int run) {
  host_->events().remove(run);
  const auto at = std::ranges::find(runs_, run, &UniqueFd::get);
  last_run_ = std::move(*at);
  runs_.erase(at);
  if (runs_.empty()) return end_if_alone();
  os::close_connection(std::move(last_run_), janitor_);
}

void Keeper::end_if_alone() {
  if (!runs_.empty()) return;
  // The end of a session may have removed the directory: no run can find this hub any more.
  if (::access(directory_.c_str(), F_OK) != 0) return host_->events().stop();
  last_ = FabricLock::try_to_take(directory_);
  if (last_) accept();  // a run that connected before this process had the lock
  if (last_ && runs_.empty()) return host_->events().stop();
  last_.reset();
  if (runs_.empty()) end_->set(util::monotonic_now() + kBetweenTries);
}

/// Detaches standard input and output, so that a reader of a run's output does not wait for the
/// keeper. The log goes to a file.
void leave_terminal(const std::string& directory) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // its log may hit a size limit
  ::prctl(PR_SET_NAME, "softhca-hub");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(
      ::open((directory + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(log ? log.get() : null.get(), STDERR_FILENO);
}

[[noreturn]] void be_keeper(const std::string& directory, const FabricSetup& setup, int answer) {
  os::close_all_but({answer});
  util::set_log_sink(nullptr);  // a thread of the parent process may have served it
  leave_terminal(directory);
  os::raise_descriptor_limit();
  os::raise_file_size_limit();
  {
    Keeper keeper(directory);
    util::Result<std::string> good;
    if (auto set_up = keeper.set_up(setup); set_up) {
      good = keeper.await_others();
    } else {
      good = tl::unexpected(set_up.error());
    }
    const auto words = good ? std::string(kReady) + *good : good.error().message;
    [[maybe_unused]] const auto written = ::write(answer, words.data(), words.size());
    ::close(answer);
    if (!good) ::_exit(1);
    [[maybe_unused]] const auto root = ::chdir("/");
    keeper.run();
  }
  ::_exit(0);
}

/// Starts a keeper, and returns its notice when it is ready.
util::Result<std::string> start_keeper(const std::string& directory, const FabricSetup& setup) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return util::fail_errno("fabric: pipe");
  const UniqueFd from(fds[0]);
  UniqueFd to(fds[1]);
  const auto pid = ::fork();
  if (pid < 0) return util::fail_errno("fabric: fork");
  if (pid == 0) be_keeper(directory, setup, to.get());
  to.reset();
  std::string words;
  std::array<char, 512> buffer;
  while (true) {
    const auto size = ::read(from.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    words.append(buffer.data(), static_cast<std::size_t>(size));
  }
  if (words.starts_with(kReady)) return words.substr(kReady.size());
  return util::fail(words.empty() ? "fabric: the hub did not start" : words);
}

/// Finds the keeper of `directory`, if there is one. Runs of other users are never joined.
/// @pre the directory's lock is held
util::Result<UniqueFd> find_keeper(const std::string& directory) {
  if (::access(directory.c_str(), F_OK) != 0 && errno == ENOENT) return UniqueFd();
  if (auto good = check_private_directory(directory); !good) return tl::unexpected(good.error());
  auto keeper = os::connect_own(runs_socket(directory), "fabric", kNoLimit);
  return keeper ? *std::move(keeper) : UniqueFd();
}

/// Finds a fabric that a run in another environment has placed elsewhere; nothing if there is none.
std::optional<FabricMember> find_elsewhere(const std::vector<std::string>& directories) {
  for (const auto& directory : directories | std::views::drop(1)) {
    if (::access(directory.c_str(), F_OK) != 0) continue;
    const auto lock = FabricLock::take(directory);
    if (!lock) continue;
    if (auto keeper = find_keeper(directory); keeper && *keeper) {
      return FabricMember{.directory = directory, .keeper = *std::move(keeper)};
    }
  }
  return std::nullopt;
}

/// Removes directories of fabrics beside `directory` whose keepers were killed.
void remove_dead_fabrics(const std::string& directory) {
  for (const auto& other : other_fabrics(directory)) {
    const auto lock = FabricLock::try_to_take(other);
    if (!lock) continue;
    if (const auto keeper = find_keeper(other); !keeper || *keeper) continue;
    remove_directory(other);
    lock->remove_file();
  }
}

util::Result<FabricMember> begin_fabric(const std::string& directory, const FabricSetup& setup,
                                        const PrepareFabric& prepare) {
  remove_dead_fabrics(directory);
  auto good = make_fabric_directory(directory);
  if (good && setup.trunk) good = write_trunk_files(directory, *setup.trunk);
  if (good) good = prepare(directory);
  auto notice = good ? start_keeper(directory, setup) : tl::unexpected(good.error());
  if (!notice) {
    remove_directory(directory);
    return tl::unexpected(notice.error());
  }
  auto keeper = os::connect_own(runs_socket(directory), "fabric", kNoLimit);
  if (!keeper) return tl::unexpected(keeper.error());
  return FabricMember{directory, *std::move(keeper), *std::move(notice)};
}

/// Whether an existing fabric has what a run wants of it.
util::Result<void> check_existing(const std::string& name, const std::string& directory,
                                  const FabricSetup& setup) {
  if (!setup.pcap.empty()) {
    return util::fail(fmt::format(
        "--pcap: fabric {} is there already, and the run that comes first captures; with --private "
        "this one has a fabric of its own",
        name));
  }
  if (!setup.trunk) return {};
  const auto words = read_trunk_words(directory);
  if (words == setup.trunk->words) return {};
  return util::fail(fmt::format(
      "fabric {} is there already, with{}: the run that comes first joins other machines, and this "
      "one wants{}",
      name, words.empty() ? " no --join and no --listen" : words, setup.trunk->words));
}

}  // namespace

void leave_fabric(UniqueFd keeper) {
  constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(keeper.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ::shutdown(keeper.get(), SHUT_WR);
  char byte;
  while (::recv(keeper.get(), &byte, sizeof byte, 0) < 0 && errno == EINTR) {
  }
}

util::Result<FabricMember> join_fabric(const std::string& name, const FabricSetup& setup,
                                       const PrepareFabric& prepare) {
  const auto joined = [&](FabricMember member) -> util::Result<FabricMember> {
    if (auto good = check_existing(name, member.directory, setup); !good) {
      return tl::unexpected(good.error());
    }
    return member;
  };
  const auto directories = fabric_directories(name);
  if (!directories) return tl::unexpected(directories.error());
  if (auto member = find_elsewhere(*directories)) return joined(*std::move(member));
  const auto& directory = directories->front();
  const auto lock = FabricLock::take(directory);
  if (!lock) return tl::unexpected(lock.error());
  auto keeper = find_keeper(directory);
  if (!keeper) return tl::unexpected(keeper.error());
  if (*keeper) return joined({.directory = directory, .keeper = *std::move(keeper)});
  auto member = begin_fabric(directory, setup, prepare);
  if (!member) lock->remove_file();
  return member;
}

}  // namespace softhca::run
