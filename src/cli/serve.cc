#include "cli/serve.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "cli/device_spec.h"
#include "fabric/capture.h"
#include "fabric/switch.h"
#include "util/log.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/server.h"

namespace softhca::cli {
namespace {

std::uint64_t nanoseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// Everything that runs, in the order in which it is made; it goes in the opposite order.
struct Machine {
  std::unique_ptr<vfio_user::ServeLoop> loop;
  std::unique_ptr<fabric::Capture> capture;
  std::map<std::string, std::unique_ptr<fabric::Switch>> switches;  ///< by name
  std::vector<std::unique_ptr<fabric::Port>> ports;
  std::vector<std::unique_ptr<connectx::Device>> devices;
  std::vector<std::unique_ptr<vfio_user::Server>> servers;

  /// True if any frame was delivered. All of them are: they refer to memory that the next message
  /// may unmap.
  bool deliver() {
    bool moved = false;
    for (auto& [name, fabric] : switches) {
      while (fabric->has_work()) {
        moved = true;
        fabric->deliver(std::numeric_limits<std::size_t>::max());
      }
    }
    return moved;
  }
};

util::Result<void> check(const ServeOptions& options) {
  if (options.sockets.size() != options.devices.size()) {
    return util::fail(fmt::format("{} --device but {} --socket: each device needs one",
                                  options.devices.size(), options.sockets.size()));
  }
  if (std::set(options.sockets.begin(), options.sockets.end()).size() != options.sockets.size()) {
    return util::fail("two devices cannot share a --socket path");
  }
  for (const auto& port : options.ports) {
    if (port != "switch" && !port.starts_with("switch:")) {
      return util::fail(fmt::format("--port {}: want switch or switch:NAME", port));
    }
  }
  return {};
}

const std::string& port_of(const ServeOptions& options, std::size_t device) {
  static const std::string kDefault = "switch";
  if (options.ports.empty()) return kDefault;
  return options.ports[std::min(device, options.ports.size() - 1)];
}

util::Result<void> add_device(Machine& machine, const ServeOptions& options, std::size_t index) {
  auto parsed = parse_device(options.devices[index], static_cast<unsigned>(index));
  if (!parsed) return tl::unexpected(parsed.error());
  for (const auto& other : machine.devices) {
    if (other->options().mac == parsed->mac || other->options().node_guid == parsed->node_guid) {
      return util::fail(
          fmt::format("{} and {} have the same mac or guid", other->name(), parsed->name));
    }
  }
  auto& fabric = machine.switches[port_of(options, index)];
  if (!fabric) {
    fabric = std::make_unique<fabric::Switch>();
    fabric->set_tap(machine.capture.get());
  }
  machine.ports.push_back(fabric->create_port(parsed->name));
  machine.devices.push_back(
      std::make_unique<connectx::Device>(*std::move(parsed), *machine.ports.back()));
  auto& device = *machine.devices.back();
  machine.loop->add(device);
  auto server = vfio_user::Server::listen(machine.loop->events(), device, options.sockets[index]);
  if (!server) return tl::unexpected(server.error());
  machine.servers.push_back(*std::move(server));
  util::log(util::LogLevel::kInfo, "{} listens on {}", device.name(), options.sockets[index]);
  return {};
}

}  // namespace

util::Result<void> serve(const ServeOptions& options) {
  if (auto checked = check(options); !checked) return checked;
  Machine machine;
  auto loop = vfio_user::ServeLoop::create({.poll = std::chrono::microseconds(options.poll_us)});
  if (!loop) return tl::unexpected(loop.error());
  machine.loop = *std::move(loop);
  if (auto signals = machine.loop->events().stop_on_signals(); !signals) return signals;
  if (!options.pcap.empty()) {
    auto capture = fabric::Capture::create(options.pcap, nanoseconds_since_1970);
    if (!capture) return tl::unexpected(capture.error());
    machine.capture = *std::move(capture);
  }
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    if (auto added = add_device(machine, options, i); !added) return added;
  }
  machine.loop->set_after_run([&machine] { return machine.deliver(); });
  std::puts("ready");
  std::fflush(stdout);
  machine.loop->run();
  return {};
}

}  // namespace softhca::cli
