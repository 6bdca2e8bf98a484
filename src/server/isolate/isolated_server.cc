#include "server/isolate/isolated_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "control/control_socket.h"
#include "fabric/switch.h"
#include "os/adaptive_poll.h"
#include "os/event_loop.h"
#include "os/janitor.h"
#include "run/capture.h"
#include "server/isolate/groups.h"
#include "server/isolate/guest_process.h"
#include "server/isolate/isolated_control.h"
#include "server/isolate/listener.h"
#include "util/log.h"
#include "vfio_user/process_limits.h"
#include "vfio_user/turn_times.h"

namespace softhca::server {
namespace {

/// Frames between two polls of the sockets, and frames from each NIC in one round.
constexpr std::size_t kFramesPerTurn = 128;
constexpr std::size_t kFramesAtOnce = 16;
/// Cost of a frame in units of util::WorkBudget: two copies and a lookup of its destination.
constexpr std::int64_t kFrameWork = 1000;
/// Time limit for the start of all processes.
constexpr auto kStartTime = std::chrono::seconds(30);

class IsolatedServer {
 public:
  IsolatedServer(const ServeOptions& options, const std::vector<DeviceSpec>& specs,
                 const std::vector<std::string>& switches)
      : options_(options),
        specs_(specs),
        switch_of_(switches),
        poll_(std::chrono::microseconds(options.poll_us)),
        times_(options.measure_turns) {}
  ~IsolatedServer() {
    control_.reset();
    for (const auto& process : processes_) process->stop();  // in parallel
  }
  IsolatedServer(const IsolatedServer&) = delete;
  IsolatedServer& operator=(const IsolatedServer&) = delete;

  util::Result<void> set_up(const os::SocketAccess& access);
  util::Result<void> wait_until_ready();
  util::Result<void> set_up_control();
  void run() {
    while (!events_->stopped()) turn(util::kNever);
  }

 private:
  util::Result<void> start_processes();
  GuestProcess::Config config_of(std::size_t index, const DeviceGroup& group);
  fabric::Switch& switch_of(std::size_t device);
  void turn(util::Time limit);
  bool exchange();

  const ServeOptions& options_;
  const std::vector<DeviceSpec>& specs_;
  const std::vector<std::string>& switch_of_;
  os::AdaptivePoll poll_;
  vfio_user::TurnTimes times_;
  // In order of creation; destroyed in the opposite order.
  std::unique_ptr<fabric::Capture> capture_;
  std::unique_ptr<os::EventLoop> events_;
  os::Janitor janitor_;
  std::map<std::string, std::unique_ptr<fabric::Switch>> switches_;  ///< by name
  std::vector<Listener> listeners_;
  std::vector<DeviceGroup> groups_;
  std::optional<IsolatedControl> answers_;
  std::vector<std::unique_ptr<GuestProcess>> processes_;
  std::unique_ptr<control::ControlSocket> control_;
};

util::Result<void> IsolatedServer::set_up(const os::SocketAccess& access) {
  // Each process has its own descriptors. The server needs few, and leaves the rest of its limit to
  // them.
  if (auto share = vfio_user::share_process(1); !share) return tl::unexpected(share.error());
  auto capture = run::make_capture(options_);
  if (!capture) return tl::unexpected(capture.error());
  capture_ = *std::move(capture);
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  events_ = *std::move(events);
  if (auto signals = events_->stop_on_signals(); !signals) return signals;
  for (const auto& path : options_.sockets) {
    auto listener = Listener::listen(path, access);
    if (!listener) return tl::unexpected(listener.error());
    listeners_.push_back(*std::move(listener));
  }
  return start_processes();
}

util::Result<void> IsolatedServer::set_up_control() {
  if (options_.control.empty()) return {};
  auto control = control::ControlSocket::listen(
      *events_, options_.control,
      [this](std::string_view request, const control::ControlSocket::Reply& reply) {
        answers_->answer(request, reply);
      });
  if (!control) return tl::unexpected(control.error());
  control_ = *std::move(control);
  return {};
}

util::Result<void> IsolatedServer::start_processes() {
  std::vector<std::string> guests;
  guests.reserve(options_.devices.size());
  for (const auto& text : options_.devices) guests.push_back(guest_of(text));
  groups_ = group_devices(specs_, guests);
  answers_.emplace(*events_, specs_, groups_);
  for (const auto& text : options_.faults) {
    if (auto added = answers_->add_rule(text); !added) {
      return util::fail(fmt::format("--fault {}: {}", text, added.error().message));
    }
  }
  std::vector<GuestProcess*> processes;
  for (std::size_t i = 0; i != groups_.size(); ++i) {
    auto process = GuestProcess::start(*events_, config_of(i, groups_[i]));
    if (!process) return tl::unexpected(process.error());
    processes_.push_back(*std::move(process));
    processes.push_back(processes_.back().get());
  }
  answers_->set_processes(std::move(processes), times_);
  return {};
}

GuestProcess::Config IsolatedServer::config_of(std::size_t index, const DeviceGroup& group) {
  GuestProcess::Config config;
  config.janitor = &janitor_;
  config.program = options_.program;
  std::vector<std::string_view> names;
  for (const auto device : group) {
    const auto& name = name_of(specs_[device]);
    names.push_back(name);
    config.options.devices.push_back(options_.devices[device]);
    config.options.places.push_back(static_cast<unsigned>(device));
    if (is_nic(specs_[device])) {
      config.nics.push_back({name, &switch_of(device)});
    }
  }
  config.name = fmt::format("{}", fmt::join(names, ", "));
  config.options.poll_us = options_.poll_us;
  config.options.measure_turns = options_.measure_turns;
  config.options.verbose = options_.verbose;
  config.prepare = [this, index](ProcessOptions& now) -> util::Result<void> {
    for (const auto device : groups_[index]) {
      if (auto good = listeners_[device].renew(); !good) return good;
      now.listeners.push_back(listeners_[device].fd());
    }
    now.faults = answers_->rules_for(index);
    return {};
  };
  return config;
}

fabric::Switch& IsolatedServer::switch_of(std::size_t device) {
  auto& found = switches_[switch_of_[device]];
  if (!found) {
    found = std::make_unique<fabric::Switch>();
    if (capture_ != nullptr) found->set_tap(&capture_->add_tap());
  }
  return *found;
}

util::Result<void> IsolatedServer::wait_until_ready() {
  const auto end = util::monotonic_now() + kStartTime;
  const auto is_ready = [](const auto& process) { return process->ready(); };
  while (!events_->stopped() && !std::ranges::all_of(processes_, is_ready)) {
    for (const auto& process : processes_) {
      if (process->gone()) return util::fail(fmt::format("{} did not start", process->name()));
    }
    if (util::monotonic_now() >= end) return util::fail("a process does not start in time");
    turn(end);
  }
  return {};
}

void IsolatedServer::turn(util::Time limit) {
  const bool more = exchange() || poll_.look(util::monotonic_now());
  times_.end_turn();
  const auto until = more ? util::Time::min() : limit;
  if (events_->run_once(until) != 0) poll_.message(events_->last_called(), util::monotonic_now());
  times_.add_work(events_->budget().done());
}

/// Moves frames between processes, in turn. True if there are more.
bool IsolatedServer::exchange() {
  std::size_t frames = 0;
  bool more = true;
  while (more && frames < kFramesPerTurn) {
    std::size_t now = 0;
    for (const auto& process : processes_) now += process->receive(kFramesAtOnce);
    // Delivery ends here: the server's end of a link has no receiver that answers.
    for (const auto& [name, one] : switches_) one->deliver(std::numeric_limits<std::size_t>::max());
    for (const auto& process : processes_) process->settle();
    frames += now;
    if (now != 0) {
      poll_.work(util::monotonic_now());
      continue;
    }
    bool sleeps = true;
    for (const auto& process : processes_) sleeps &= process->prepare_to_sleep();
    more = !sleeps;
    ++frames;  // also ends the loop if a process claims frames that do not exist
  }
  times_.add_work(static_cast<std::int64_t>(frames) * kFrameWork);
  return more;
}

}  // namespace

util::Result<void> serve_isolated(const ServeOptions& options, const std::vector<DeviceSpec>& specs,
                                  const std::vector<std::string>& switches,
                                  const os::SocketAccess& access) {
  IsolatedServer server(options, specs, switches);
  if (auto good = server.set_up(access); !good) return good;
  if (auto ready = server.wait_until_ready(); !ready) return ready;
  if (auto controlled = server.set_up_control(); !controlled) return controlled;
  std::puts("ready");
  std::fflush(stdout);
  server.run();
  return {};
}

}  // namespace softhca::server
