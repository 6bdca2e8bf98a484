#include "server/isolate/guest_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "os/foreign_bytes.h"
#include "os/wake_socket.h"
#include "server/isolate/spawn.h"
#include "util/log.h"

namespace softhca::server {
namespace {

using os::UniqueFd;
using namespace std::chrono_literals;

/// Pause between an end and the next start. It grows while processes live only for a short time.
constexpr util::Duration kShortestPause = 100ms;
constexpr util::Duration kLongestPause = 10s;
constexpr util::Duration kLongLife = 10s;
/// Time to end voluntarily when the server ends.
constexpr int kLastMilliseconds = 1000;

struct Pair {
  UniqueFd ours, theirs;
};

util::Result<Pair> make_channel() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return util::fail_errno("channel: socketpair");
  }
  return Pair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

util::Result<Pair> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return util::fail_errno("log: pipe");
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return Pair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace

util::Result<std::unique_ptr<GuestProcess>> GuestProcess::start(os::EventLoop& loop,
                                                                Config config) {
  std::unique_ptr<GuestProcess> process(new GuestProcess(loop, std::move(config)));
  auto restart = os::Alarm::create(loop, [&self = *process] { self.restart(); });
  if (!restart) return tl::unexpected(restart.error());
  process->restart_ = *std::move(restart);
  auto deadline =
      os::Alarm::create(loop, [&self = *process] { self.fail_due(util::monotonic_now()); });
  if (!deadline) return tl::unexpected(deadline.error());
  process->deadline_ = *std::move(deadline);
  if (auto spawned = process->spawn(); !spawned) return tl::unexpected(spawned.error());
  return process;
}

GuestProcess::GuestProcess(os::EventLoop& loop, Config config)
    : loop_(loop), config_(std::move(config)) {}

GuestProcess::~GuestProcess() {
  stop();
  int status = 0;
  for (int i = 0; pid_ > 0 && i != kLastMilliseconds; ++i) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) pid_ = -1;
    if (pid_ > 0) std::this_thread::sleep_for(1ms);
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  clear();
}

void GuestProcess::stop() {
  if (restart_) restart_->set(util::kNever);
  channel_.reset();
}

util::Result<void> GuestProcess::spawn() {
  auto options = config_.options;
  if (auto prepared = config_.prepare(options); !prepared) return prepared;
  for (const auto& nic : config_.nics) {
    auto to = os::SharedRing::create(fabric::RingPort::kCapacity);
    if (!to) return tl::unexpected(to.error());
    auto from = os::SharedRing::create(fabric::RingPort::kCapacity);
    if (!from) return tl::unexpected(from.error());
    options.rings.insert(options.rings.end(), {to->fd(), from->fd()});
    links_.push_back(std::make_unique<fabric::RingPort>(nic.fabric->create_port(nic.name),
                                                        *std::move(to), *std::move(from)));
  }
  auto log = make_pipe();
  if (!log) return tl::unexpected(log.error());
  auto channel = make_channel();
  if (!channel) return tl::unexpected(channel.error());
  auto ends = os::WakeSocket::make_pair();
  if (!ends) return tl::unexpected(ends.error());
  options.channel = channel->theirs.get();
  options.wake_socket = ends->second.fd();
  auto inherited = options.rings;
  inherited.insert(inherited.end(), options.listeners.begin(), options.listeners.end());
  inherited.insert(inherited.end(), {options.channel, options.wake_socket});
  const auto pid = spawn_program(config_.program, to_words(options), inherited, log->theirs.get());
  if (!pid) return tl::unexpected(pid.error());
  pid_ = *pid;
  started_ = util::monotonic_now();
  ++starts_;
  reason_ = nullptr;
  wake_socket_ = UniqueFd(ends->first.release());
  channel_ = std::make_unique<Channel>(
      loop_, std::move(channel->ours), Channel::kAnswerMax, *config_.janitor,
      Channel::Handlers{
          [this](auto number, auto text) { handle_message(number, text); },
          [this](bool nonsense) { kill(nonsense ? "what it said is no answer" : nullptr); }});
  auto drain = LogPipe::create(loop_, std::move(log->ours), [](auto level, auto text) {
    if (util::log_enabled(level)) util::log_text(level, text);
  });
  if (!drain) return tl::unexpected(drain.error());
  log_ = *std::move(drain);
  return watch();
}

util::Result<void> GuestProcess::watch() {
  if (auto started = channel_->start(); !started) return started;
  auto watched = loop_.add(wake_socket_.get(), EPOLLIN, [this](std::uint32_t) { clear_wake(); });
  if (!watched) return watched;
  pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) return util::fail_errno("pidfd_open");
  return loop_.add(pidfd_.get(), EPOLLIN, [this](std::uint32_t) { handle_end(); });
}

/// Like os::WakeSocket::clear(), but the process may send descriptors.
void GuestProcess::clear_wake() {
  std::array<char, 256> bytes;
  (void)os::receive_bytes(wake_socket_.get(), bytes, *config_.janitor);
}

void GuestProcess::kill(const char* reason) {
  if (pid_ <= 0 || reason_ != nullptr) return;
  reason_ = reason;  // null: the process has ended by itself, and its status gives the reason
  ready_ = false;
  ::kill(pid_, SIGKILL);
}

void GuestProcess::handle_end() {
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return;
  const auto pid = std::exchange(pid_, -1);
  clear();
  util::log(util::LogLevel::kError, "process {} of {} has ended by {}{}{}", pid, config_.name,
            describe_end(status), reason_ == nullptr ? "" : ": ",
            reason_ == nullptr ? "" : reason_);
  const auto now = util::monotonic_now();
  pause_ = now - started_ >= kLongLife ? kShortestPause
                                       : std::clamp(2 * pause_, kShortestPause, kLongestPause);
  restart_->set(now + pause_);
}

/// Destroys all connections to the process.
void GuestProcess::clear() {
  ready_ = false;
  if (pidfd_) loop_.remove(pidfd_.get());
  if (wake_socket_) loop_.remove(wake_socket_.get());
  pidfd_.reset();
  os::close_connection(std::move(wake_socket_), *config_.janitor);
  channel_.reset();
  log_.reset();
  links_.clear();
  fail_due(util::kNever);
}

void GuestProcess::restart() {
  auto spawned = spawn();
  if (spawned) return;
  util::log(util::LogLevel::kError, "{}: {}", config_.name, spawned.error().message);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  clear();
  restart_->set(util::monotonic_now() + kLongestPause);
}

void GuestProcess::handle_message(std::uint32_t number, std::string_view text) {
  if (reason_ != nullptr) return;  // it has been killed, and may send messages until it ends
  if (number == 0) {
    if (ready_) return kill("it said twice that it serves");
    ready_ = true;
    return util::log(util::LogLevel::kInfo, "process {} serves {}", pid_, config_.name);
  }
  const auto found = questions_.find(number);
  if (found == questions_.end()) return;  // the answer is too late
  const auto answer = std::move(found->second.answer);
  questions_.erase(found);
  answer(std::string(text));
}

void GuestProcess::ask(std::string_view request, Answer answer) {
  if (!ready_ || !channel_->send(++last_question_, request)) {
    return answer("error: the process of " + config_.name + " is not there\n");
  }
  const auto deadline = util::monotonic_now() + kPatience;
  if (questions_.empty()) deadline_->set(deadline);
  questions_.emplace(last_question_, Question{deadline, std::move(answer)});
}

/// Fails the questions whose deadline has passed.
void GuestProcess::fail_due(util::Time now) {
  while (!questions_.empty() && questions_.begin()->second.deadline <= now) {
    const auto answer = std::move(questions_.begin()->second.answer);
    questions_.erase(questions_.begin());
    answer("error: the process of " + config_.name + " does not answer\n");
  }
  if (deadline_) {
    deadline_->set(questions_.empty() ? util::kNever : questions_.begin()->second.deadline);
  }
}

std::size_t GuestProcess::receive(std::size_t frames) {
  std::size_t count = 0;
  for (const auto& link : links_) {
    count += link->receive(frames);
    if (link->broken()) kill("it broke the rules of its rings");
  }
  return count;
}

void GuestProcess::settle() {
  bool wake = false;
  for (const auto& link : links_) wake |= link->settle();
  if (wake) os::WakeSocket::wake(wake_socket_.get());
}

bool GuestProcess::prepare_to_sleep() {
  bool sleeps = true;
  for (const auto& link : links_) sleeps &= link->prepare_to_sleep();
  return sleeps;
}

void GuestProcess::inspect(util::InspectNode& out) const {
  out.add("pid", static_cast<std::uint64_t>(std::max(pid_, 0)));
  out.add("starts", std::uint64_t{starts_});
  out.add("serves", ready_);
  for (std::size_t i = 0; i != links_.size(); ++i) {
    const auto& counters = links_[i]->counters();
    auto& link = out.child(config_.nics[i].name);
    link.add("frames_to_it", counters.sent);
    link.add("frames_from_it", counters.received);
    link.add("dropped_full", counters.dropped_full);
    link.add("dropped_unfit", counters.dropped_unfit);
  }
}

}  // namespace softhca::server
