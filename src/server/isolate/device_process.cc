#include "server/isolate/device_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "jingzhao/device.h"
#include "os/event_signal.h"
#include "os/memory_guard.h"
#include "os/process_descriptors.h"
#include "os/wake_socket.h"
#include "sdxi/device.h"
#include "sdxi/group.h"
#include "server/control.h"
#include "server/device_spec.h"
#include "server/isolate/channel.h"
#include "server/isolate/log_pipe.h"
#include "server/isolate/sandbox.h"
#include "vfio_user/process_limits.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/server.h"

namespace softhca::server {
namespace {

/// A NIC's cable. Frames from the NIC to itself stay here; others go to the server.
struct Cable {
  Cable(const std::string& name, os::SharedRing to, os::SharedRing from)
      : port(fabric.create_port(name)),
        link(fabric.create_port("server"), std::move(from), std::move(to)) {}

  fabric::Switch fabric;
  std::unique_ptr<fabric::Port> port;
  fabric::RingPort link;
};

class DeviceProcess final : private vfio_user::Fabric {
 public:
  explicit DeviceProcess(const ProcessOptions& options)
      : options_(options), wake_socket_(options.wake_socket) {}
  ~DeviceProcess() override {
    servers_.clear();
    while (!devices_.empty()) devices_.pop_back();  // VFs before their PF
  }
  DeviceProcess(const DeviceProcess&) = delete;
  DeviceProcess& operator=(const DeviceProcess&) = delete;

  util::Result<void> set_up();
  void run() { loop_->run(); }

 private:
  util::Result<void> set_up_loop();
  util::Result<void> add_device(std::size_t index, const vfio_user::Server::Options& server_of);
  template <class Device, class Options>
  util::Result<std::unique_ptr<Device>> make_nic(Options spec);
  util::Result<std::unique_ptr<pcie::Function>> make(const connectx::DeviceOptions& spec);
  util::Result<std::unique_ptr<pcie::Function>> make(const jingzhao::DeviceOptions& spec);
  util::Result<std::unique_ptr<pcie::Function>> make(const sdxi::DeviceOptions& spec);
  util::Result<std::unique_ptr<pcie::Function>> make(const VirtualFunctionSpec& spec);
  util::Result<void> set_up_control();
  // vfio_user::Fabric
  bool has_frames() override;
  void deliver(std::size_t frames) override;

  const ProcessOptions& options_;
  os::WakeSocket wake_socket_;
  std::unique_ptr<vfio_user::ServeLoop> loop_;
  os::Janitor janitor_;
  std::unique_ptr<Channel> channel_;
  std::size_t rings_used_ = 0;  ///< of options_.rings
  std::vector<std::unique_ptr<Cable>> cables_;
  bool moved_ = false;  ///< the last deliver() moved frames, and there may be more
  sdxi::FunctionGroup group_;
  hca::Faults hca_faults_;
  std::map<std::string, sdxi::Device*> data_movers_;  ///< PFs, by name
  std::vector<std::unique_ptr<pcie::Function>> devices_;
  std::vector<std::unique_ptr<vfio_user::Server>> servers_;
  ControlTargets targets_;
  std::unique_ptr<ServerControl> control_;
};

/// Closes everything else that the server was started with.
void close_others(const ProcessOptions& options) {
  std::vector<int> ours = options.listeners;
  ours.insert(ours.end(), options.rings.begin(), options.rings.end());
  ours.insert(ours.end(), {options.channel, options.wake_socket});
  os::close_all_but(ours);
}

util::Result<void> DeviceProcess::set_up() {
  if (options_.places.size() != options_.devices.size() ||
      options_.listeners.size() != options_.devices.size()) {
    return util::fail("a place and a listener for each device");
  }
  close_others(options_);
  vfio_user::Server::Options server_of;
  const auto share = vfio_user::share_process(options_.devices.size());
  if (!share) return tl::unexpected(share.error());
  server_of.max_maps = share->maps;
  server_of.max_eventfds = share->eventfds;
  // Created while files can still be opened.
  os::MemoryGuard::instance();
  os::EventSignal::instance();
  const auto remarks = enter_sandbox();
  if (!remarks) return tl::unexpected(remarks.error());
  for (const auto& remark : *remarks) util::log(util::LogLevel::kWarning, "sandbox: {}", remark);
  if (auto good = set_up_loop(); !good) return good;
  for (std::size_t i = 0; i != options_.devices.size(); ++i) {
    if (auto added = add_device(i, server_of); !added) return added;
  }
  return set_up_control();
}

util::Result<void> DeviceProcess::set_up_loop() {
  auto loop = vfio_user::ServeLoop::create(
      {.poll = std::chrono::microseconds(options_.poll_us), .measure = options_.measure_turns});
  if (!loop) return tl::unexpected(loop.error());
  loop_ = *std::move(loop);
  loop_->set_fabric(*this);
  group_.workers().set_wake_control([&events = loop_->events()] { events.wake(); });
  return loop_->events().add(wake_socket_.fd(), EPOLLIN,
                             [this](std::uint32_t) { wake_socket_.clear(); });
}

util::Result<void> DeviceProcess::add_device(std::size_t index,
                                             const vfio_user::Server::Options& server_of) {
  auto spec = parse_device(options_.devices[index], options_.places[index]);
  if (!spec) return tl::unexpected(spec.error());
  auto device = std::visit([this](auto& one) { return make(std::move(one)); }, *spec);
  if (!device) return tl::unexpected(device.error());
  devices_.push_back(*std::move(device));
  loop_->add(*devices_.back());
  auto server = vfio_user::Server::serve(loop_->events(), *devices_.back(),
                                         os::UniqueFd(options_.listeners[index]), server_of);
  if (!server) return tl::unexpected(server.error());
  servers_.push_back(*std::move(server));
  return {};
}

template <class Device, class Options>
util::Result<std::unique_ptr<Device>> DeviceProcess::make_nic(Options spec) {
  if (options_.rings.size() < rings_used_ + 2) return util::fail("two rings for each NIC");
  auto to = os::SharedRing::attach(options_.rings[rings_used_++]);
  if (!to) return tl::unexpected(to.error());
  auto from = os::SharedRing::attach(options_.rings[rings_used_++]);
  if (!from) return tl::unexpected(from.error());
  auto& cable =
      *cables_.emplace_back(std::make_unique<Cable>(spec.name, *std::move(to), *std::move(from)));
  auto device = std::make_unique<Device>(std::move(spec), *cable.port);
  device->dma().set_before_loss([&port = *cable.port] { return port.settle(); });
  return device;
}

util::Result<std::unique_ptr<pcie::Function>> DeviceProcess::make(
    const connectx::DeviceOptions& spec) {
  auto device = make_nic<connectx::Device>(spec);
  if (device) (*device)->faults().set_rules(hca_faults_);
  if (device && spec.share_doorbells) {
    if (auto shared = (*device)->share_doorbells(); !shared) return tl::unexpected(shared.error());
  }
  return device;
}

util::Result<std::unique_ptr<pcie::Function>> DeviceProcess::make(
    const jingzhao::DeviceOptions& spec) {
  auto device = make_nic<jingzhao::Device>(spec);
  if (device) (*device)->faults().set_rules(hca_faults_);
  return device;
}

util::Result<std::unique_ptr<pcie::Function>> DeviceProcess::make(const sdxi::DeviceOptions& spec) {
  auto device = std::make_unique<sdxi::Device>(spec, group_);
  data_movers_[spec.name] = device.get();
  return device;
}

util::Result<std::unique_ptr<pcie::Function>> DeviceProcess::make(const VirtualFunctionSpec& spec) {
  return std::make_unique<sdxi::Device>(spec.options, group_, *data_movers_.at(spec.pf));
}

util::Result<void> DeviceProcess::set_up_control() {
  for (const auto& device : devices_) targets_.functions.push_back(device.get());
  targets_.faults = &group_.faults();
  targets_.hca_faults = &hca_faults_;
  targets_.loop = loop_.get();
  for (const auto& text : options_.faults) {
    const auto added = FaultRules(targets_.functions, group_.faults(), &hca_faults_).add(text);
    if (!added) return tl::unexpected(added.error());
  }
  control_ = std::make_unique<ServerControl>(loop_->events(), targets_);
  channel_ = std::make_unique<Channel>(
      loop_->events(), os::UniqueFd(options_.channel), Channel::kRequestMax, janitor_,
      Channel::Handlers{[this](std::uint32_t number, std::string_view request) {
                          control_->answer(request, {.send = [this, number](const auto& text) {
                                             channel_->send(number, text);
                                           }});
                        },
                        [this](bool) { loop_->stop(); }});
  if (auto started = channel_->start(); !started) return started;
  channel_->send(0, "ready");
  return {};
}

/// Whether frames wait between the devices and the server. If not, the server wakes the other side
/// for the next one.
bool DeviceProcess::has_frames() {
  bool any = moved_;
  for (const auto& cable : cables_) any |= cable->fabric.has_work();
  if (any) return true;
  for (const auto& cable : cables_) any |= !cable->link.prepare_to_sleep();
  return any;
}

void DeviceProcess::deliver(std::size_t frames) {
  bool wake = false;
  moved_ = false;
  for (const auto& cable : cables_) {
    moved_ |= cable->link.receive(frames) != 0;
    moved_ |= cable->fabric.has_work();
    cable->fabric.deliver(frames);
    wake |= cable->link.settle();
  }
  if (wake) wake_socket_.wake();
}

}  // namespace

int run_process(const ProcessOptions& options) {
  // Ends with the server, even if the server is killed. Only the server handles signals.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) ::signal(number, SIG_IGN);
  if (options.verbose) util::set_log_level(util::LogLevel::kDebug);
  ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  util::set_log_sink([](auto level, auto text) { log_to_pipe(STDERR_FILENO, level, text); });
  DeviceProcess process(options);
  if (auto good = process.set_up(); !good) {
    util::log(util::LogLevel::kError, "{}", good.error().message);
    return 1;
  }
  process.run();
  return 0;
}

}  // namespace softhca::server
