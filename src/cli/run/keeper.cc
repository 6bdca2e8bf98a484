#include "cli/run/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "cli/run/hub_host.h"
#include "cli/run/run_directory.h"
#include "util/alarm.h"
#include "util/log.h"
#include "vfio_user/spare_descriptor.h"
#include "vfio_user/unix_socket.h"

namespace softhca::cli {
namespace {

using vfio_user::UniqueFd;
using namespace std::chrono_literals;

constexpr int kBacklog = 128;
/// For the run that has started the keeper to come.
constexpr auto kFirstPatience = 10s;
/// Between two tries to end, while another run holds the lock.
constexpr auto kBetweenTries = 50ms;
constexpr std::string_view kReady = "ready";

std::string runs_socket(const std::string& directory) { return directory + "/runs"; }

class Keeper {
 public:
  explicit Keeper(std::string directory) : directory_(std::move(directory)) {}
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  util::Result<void> set_up(const std::string& pcap);
  void run() {
    while (!host_->events().stopped()) host_->events().run_once(util::kNever);
  }

 private:
  void accept();
  void leave(int run);
  void end_if_alone();

  const std::string directory_;
  std::optional<FabricLock> last_;  ///< held while all goes
  std::unique_ptr<HubHost> host_;
  UniqueFd listener_;
  vfio_user::SpareDescriptor spare_;
  std::vector<UniqueFd> runs_;
  std::unique_ptr<util::Alarm> end_;
};

util::Result<void> Keeper::set_up(const std::string& pcap) {
  auto host = HubHost::create(directory_, pcap);
  if (!host) return tl::unexpected(host.error());
  host_ = *std::move(host);
  auto& events = host_->events();
  if (auto signals = events.stop_on_signals(); !signals) return signals;
  auto alarm = util::Alarm::create(events, [this] { end_if_alone(); });
  if (!alarm) return tl::unexpected(alarm.error());
  end_ = *std::move(alarm);
  end_->set(util::monotonic_now() + kFirstPatience);
  auto bound = vfio_user::bind_unix(runs_socket(directory_), "fabric");
  if (!bound) return tl::unexpected(bound.error());
  listener_ = *std::move(bound);
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("fabric: listen");
  return events.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

/// By a signal it goes without the lock, if need be: the next run finds nobody, and begins anew.
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
  end_->set(util::kNever);
}

/// It has gone, or talks, which no run does.
void Keeper::leave(int run) {
  host_->events().remove(run);
  std::erase_if(runs_, [run](const auto& one) { return one.get() == run; });
  if (runs_.empty()) end_if_alone();
}

void Keeper::end_if_alone() {
  if (!runs_.empty()) return;
  // Who ends a session may remove its directories: no run finds this hub any more.
  if (::access(directory_.c_str(), F_OK) != 0) return host_->events().stop();
  last_ = FabricLock::try_to_take(directory_);
  if (last_) accept();  // one that came before we had the lock
  if (last_ && runs_.empty()) return host_->events().stop();
  last_.reset();
  if (runs_.empty()) end_->set(util::monotonic_now() + kBetweenTries);
}

/// Standard input and output are nothing, so that nobody who reads a run's output waits for us;
/// what there is to say stands in a file.
void leave_terminal(const std::string& directory) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "softhca-hub");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(
      ::open((directory + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(log ? log.get() : null.get(), STDERR_FILENO);
}

/// All descriptors but the standard ones and `kept`.
void close_others(int kept) {
  if (kept > STDERR_FILENO + 1) {
    ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(kept) - 1, 0);
  }
  ::close_range(static_cast<unsigned>(kept) + 1, ~0u, 0);
}

[[noreturn]] void be_keeper(const std::string& directory, const std::string& pcap, int answer) {
  close_others(answer);
  util::set_log_sink(nullptr);  // a thread of the process that we come from may have served it
  leave_terminal(directory);
  raise_descriptor_limit();
  {
    Keeper keeper(directory);
    const auto good = keeper.set_up(pcap);
    const auto words = good ? std::string(kReady) : good.error().message;
    [[maybe_unused]] const auto written = ::write(answer, words.data(), words.size());
    ::close(answer);
    if (!good) ::_exit(1);
    [[maybe_unused]] const auto root = ::chdir("/");
    keeper.run();
  }
  ::_exit(0);
}

/// Until it is ready.
util::Result<void> start_keeper(const std::string& directory, const std::string& pcap) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return util::fail_errno("fabric: pipe");
  const UniqueFd from(fds[0]);
  UniqueFd to(fds[1]);
  const auto pid = ::fork();
  if (pid < 0) return util::fail_errno("fabric: fork");
  if (pid == 0) be_keeper(directory, pcap, to.get());
  to.reset();
  std::string words;
  std::array<char, 512> buffer;
  while (true) {
    const auto size = ::read(from.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    words.append(buffer.data(), static_cast<std::size_t>(size));
  }
  if (words == kReady) return {};
  return util::fail(words.empty() ? "fabric: the hub did not start" : words);
}

}  // namespace

util::Result<FabricMember> join_fabric(
    const std::string& name, const std::string& pcap,
    const std::function<util::Result<void>(const std::string& directory)>& prepare) {
  const auto directory = fabric_directory(name);
  if (!directory) return tl::unexpected(directory.error());
  const auto lock = FabricLock::take(*directory);
  if (!lock) return tl::unexpected(lock.error());
  const auto connect = [&] {
    return vfio_user::connect_unix(runs_socket(*directory), "fabric " + name);
  };
  if (auto keeper = connect()) {
    if (pcap.empty()) return FabricMember{*directory, *std::move(keeper)};
    return util::fail(
        fmt::format("--pcap: fabric {} is there already; the run that comes first captures", name));
  }
  auto good = make_fabric_directory(*directory);
  if (good) good = prepare(*directory);
  if (good) good = start_keeper(*directory, pcap);
  if (!good) {
    remove_directory(*directory);
    lock->remove_file();
    return tl::unexpected(good.error());
  }
  auto keeper = connect();
  if (!keeper) return tl::unexpected(keeper.error());
  return FabricMember{*directory, *std::move(keeper)};
}

}  // namespace softhca::cli
