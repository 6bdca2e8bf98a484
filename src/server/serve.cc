#include "server/serve.h"

#include <fmt/format.h>
#include <grp.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "control/control_socket.h"
#include "fabric/faulty_link.h"
#include "fabric/switch.h"
#include "hca/faults.h"
#include "jingzhao/device.h"
#include "run/capture.h"
#include "run/device_files.h"
#include "sdxi/device.h"
#include "sdxi/faults.h"
#include "sdxi/group.h"
#include "server/carrier_port.h"
#include "server/control.h"
#include "server/device_spec.h"
#include "server/fault_rules.h"
#include "server/isolate/isolated_server.h"
#include "server/network_rules.h"
#include "server/switches.h"
#include "util/log.h"
#include "util/trace.h"
#include "vfio_user/process_limits.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/server.h"

namespace softhca::server {
namespace {

/// The link type of a device's port.
wire::Link link_of(const DeviceSpec& spec) {
  const auto* jingzhao = std::get_if<jingzhao::DeviceOptions>(&spec);
  return jingzhao == nullptr ? wire::Link::kEthernet : jingzhao->link;
}

/// All parts of the server, in order of creation; destroyed in the opposite order.
struct Machine {
  std::unique_ptr<fabric::Capture> capture;
  std::unique_ptr<util::TraceWriter> trace;
  std::list<util::Trace> traces;  ///< one for each device
  std::unique_ptr<vfio_user::ServeLoop> loop;
  fabric::NetworkFaults network_faults;
  std::optional<NetworkRules> network_rules;
  Switches switches;
  std::map<std::string, unsigned> nics;              ///< number of NICs of each --port
  std::vector<std::unique_ptr<fabric::Port>> ports;  ///< outermost wrapper of each device's port
  sdxi::FunctionGroup group;                         ///< shared by all SDXI functions
  hca::Faults hca_faults;
  std::map<std::string, sdxi::Device*> data_movers;  ///< PFs, by name
  std::vector<std::unique_ptr<pcie::Function>> devices;
  std::vector<std::unique_ptr<vfio_user::Server>> servers;
  ControlTargets targets;
  std::unique_ptr<ServerControl> answers;
  std::unique_ptr<control::ControlSocket> control;

  Machine() = default;
  ~Machine() {
    control.reset();
    answers.reset();
    servers.clear();
    while (!devices.empty()) devices.pop_back();  // VFs before their PF
    while (!ports.empty()) ports.pop_back();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

util::Result<void> check(const ServeOptions& options) {
  if (options.sockets.size() != options.devices.size()) {
    return util::fail(fmt::format("{} --device but {} --socket: each device needs one",
                                  options.devices.size(), options.sockets.size()));
  }
  if (std::set(options.sockets.begin(), options.sockets.end()).size() != options.sockets.size()) {
    return util::fail("two devices cannot share a --socket path");
  }
  if (options.isolate && !options.trace.empty()) {
    return util::fail("--trace: not with --isolate, whose processes write no files");
  }
  if (options.isolate && options.loss > 0) {
    return util::fail("--loss: not with --isolate, whose links are memory and lose nothing");
  }
  if (options.isolate && std::ranges::any_of(options.faults, fabric::is_network_rule)) {
    return util::fail("--fault port=...: not with --isolate, whose links are memory");
  }
  for (const auto& port : options.ports) {
    if (auto known = check_port(port); !known) return known;
    if (options.isolate && (port.starts_with(kFabric) || is_of_host(port))) {
      return util::fail(fmt::format("--port {}: not with --isolate", port));
    }
  }
  return {};
}

const std::string& port_of(const ServeOptions& options, std::size_t device) {
  static const std::string kDefault = "switch";
  if (options.ports.empty()) return kDefault;
  return options.ports[std::min(device, options.ports.size() - 1)];
}

/// True if rules of the network exist, or may be added.
bool may_fail(const ServeOptions& options) {
  return options.loss > 0 || !options.control.empty() ||
         std::ranges::any_of(options.faults, fabric::is_network_rule);
}

/// Creates a NIC on the switch for its position on the command line.
template <class Device, class Options>
std::unique_ptr<Device> make_nic(Machine& machine, const ServeOptions& serve, std::size_t index,
                                 Options options) {
  const auto& port = port_of(serve, index);
  auto* const fabric = machine.switches.named(port, link_of(options), machine.capture.get());
  assert(fabric != nullptr && "check_links()");
  machine.ports.push_back(fabric->create_port(options.name));
  const auto* const network = machine.switches.host_port(port);
  if (network != nullptr && machine.nics[port] == 1) {
    machine.ports.push_back(std::make_unique<CarrierPort>(*machine.ports.back(), *network));
  }
  if (may_fail(serve)) {
    auto link = std::make_unique<fabric::FaultyLink>(*machine.ports.back(), machine.network_faults,
                                                     options.name, index, link_of(options));
    machine.switches.add(*link);
    machine.ports.push_back(std::move(link));
  }
  auto device = std::make_unique<Device>(std::move(options), *machine.ports.back());
  device->dma().set_before_loss([&port = *machine.ports.back()] { return port.settle(); });
  return device;
}

using MadeDevice = util::Result<std::unique_ptr<pcie::Function>>;

MadeDevice make_device(Machine& machine, const ServeOptions& serve, std::size_t index,
                       const connectx::DeviceOptions& options) {
  auto device = make_nic<connectx::Device>(machine, serve, index, options);
  device->faults().set_rules(machine.hca_faults);
  if (options.share_doorbells) {
    if (auto shared = device->share_doorbells(); !shared) return tl::unexpected(shared.error());
  }
  return device;
}

MadeDevice make_device(Machine& machine, const ServeOptions& serve, std::size_t index,
                       const jingzhao::DeviceOptions& options) {
  auto device = make_nic<jingzhao::Device>(machine, serve, index, options);
  device->faults().set_rules(machine.hca_faults);
  return device;
}

/// Creates a data mover, which has no port.
MadeDevice make_device(Machine& machine, const ServeOptions&, std::size_t,
                       const sdxi::DeviceOptions& options) {
  auto device = std::make_unique<sdxi::Device>(options, machine.group);
  machine.data_movers[options.name] = device.get();
  return device;
}

/// Creates the next VF of a data mover.
MadeDevice make_device(Machine& machine, const ServeOptions&, std::size_t,
                       const VirtualFunctionSpec& spec) {
  return std::make_unique<sdxi::Device>(spec.options, machine.group,
                                        *machine.data_movers.at(spec.pf));
}

/// All ports of a switch must have one link type.
util::Result<void> check_links(const ServeOptions& options, const std::vector<DeviceSpec>& specs) {
  std::map<std::string, wire::Link> links;
  for (const auto& port : options.ports) {
    if (port.starts_with(kFabric) || is_of_host(port)) {
      links.emplace(port, wire::Link::kEthernet);
    }
  }
  for (std::size_t i = 0; i != specs.size(); ++i) {
    if (!is_nic(specs[i])) continue;
    const auto link = link_of(specs[i]);
    const auto [found, first] = links.emplace(port_of(options, i), link);
    if (!first && found->second != link) {
      return util::fail(
          fmt::format("{}: {} has ports of another link, and an InfiniBand subnet is within one "
                      "server; --port switch:NAME makes one more switch",
                      name_of(specs[i]), found->first));
    }
    if (options.isolate && link == wire::Link::kInfiniband) {
      return util::fail("--isolate: its links between processes are Ethernet");
    }
  }
  return {};
}

util::Result<std::vector<DeviceSpec>> parse_devices(const ServeOptions& options) {
  std::vector<DeviceSpec> specs;
  for (const auto& text : options.devices) {
    auto spec = parse_device(text, static_cast<unsigned>(specs.size()), options.infiniband);
    if (!spec) return tl::unexpected(spec.error());
    specs.push_back(*std::move(spec));
  }
  if (auto good = check_together(specs); !good) return tl::unexpected(good.error());
  if (auto good = check_links(options, specs); !good) return tl::unexpected(good.error());
  return specs;
}

/// Processes of a killed server keep listening for milliseconds; those of a large one for longer.
constexpr auto kMemberPatience = std::chrono::seconds(2);

/// Permissions of the sockets.
util::Result<os::SocketAccess> socket_access(const ServeOptions& options) {
  os::SocketAccess out;
  out.patience = kMemberPatience;
  const auto& mode = options.socket_mode;
  const auto* end = mode.data() + mode.size();
  const auto [stop, bad] = std::from_chars(mode.data(), end, out.mode, 8);
  if (bad != std::errc() || stop != end || out.mode > 0777) {
    return util::fail(fmt::format("--socket-mode {}: want octal permissions, e.g. 0660", mode));
  }
  if (!options.socket_group.empty()) {
    const auto* group = ::getgrnam(options.socket_group.c_str());
    if (group == nullptr) {
      return util::fail(fmt::format("--socket-group {}: no such group", options.socket_group));
    }
    out.group = group->gr_gid;
  }
  return out;
}

/// Limits of each client.
util::Result<vfio_user::Server::Options> server_options(const ServeOptions& options,
                                                        const os::SocketAccess& access) {
  vfio_user::Server::Options out;
  out.socket = access;
  const auto share = vfio_user::share_process(options.devices.size());
  if (!share) return tl::unexpected(share.error());
  out.max_maps = share->maps;
  out.max_eventfds = share->eventfds;
  return out;
}

util::Result<void> add_device(Machine& machine, const ServeOptions& options, std::size_t index,
                              const DeviceSpec& spec, const vfio_user::Server::Options& server_of) {
  auto made = std::visit(
      [&](const auto& device) { return make_device(machine, options, index, device); }, spec);
  if (!made) return tl::unexpected(made.error());
  machine.devices.push_back(*std::move(made));
  auto& device = *machine.devices.back();
  if (machine.trace != nullptr) {
    device.set_trace(machine.traces.emplace_back(*machine.trace, device.name()));
  }
  machine.loop->add(device);
  auto server =
      vfio_user::Server::listen(machine.loop->events(), device, options.sockets[index], server_of);
  if (!server) return tl::unexpected(server.error());
  machine.servers.push_back(*std::move(server));
  util::log(util::LogLevel::kInfo, "{} listens on {}", device.name(), options.sockets[index]);
  return {};
}

using Fabrics = std::map<std::string, run::FabricMember>;

/// Joins the fabrics of all ports. @pre as for join_fabric()
util::Result<Fabrics> join_fabrics(const ServeOptions& options) {
  Fabrics all;
  for (const auto& port : options.ports) {
    if (!port.starts_with(kFabric) || all.contains(port)) continue;
    auto member = run::join_fabric(port.substr(kFabric.size()), {}, [](const auto& directory) {
      return run::write_device_files(directory);
    });
    if (!member) return util::fail(fmt::format("--port {}: {}", port, member.error().message));
    all.emplace(port, *std::move(member));
  }
  return all;
}

/// Connects switches to other networks, before they have devices.
util::Result<void> connect_switches(Machine& machine, const ServeOptions& options,
                                    const std::vector<DeviceSpec>& specs, Fabrics fabrics) {
  auto& events = machine.loop->events();
  for (auto& [port, member] : fabrics) {
    auto joined = machine.switches.join(events, port, std::move(member), machine.capture.get());
    if (!joined) return joined;
  }
  for (const auto& port : options.ports) {
    if (!is_of_host(port)) continue;
    auto attached = machine.switches.attach(events, port, machine.capture.get());
    if (!attached) return attached;
  }
  for (std::size_t i = 0; i != specs.size(); ++i) {
    if (is_nic(specs[i])) ++machine.nics[port_of(options, i)];
  }
  return {};
}

/// Sets up the rules of the network, with that of --loss.
void set_up_network_rules(Machine& machine, const ServeOptions& options,
                          const std::vector<DeviceSpec>& specs) {
  std::vector<std::string> ports;
  for (const auto& spec : specs) {
    if (is_nic(spec)) ports.push_back(name_of(spec));
  }
  machine.network_rules.emplace(machine.network_faults, std::move(ports));
  machine.targets.network = &*machine.network_rules;
  if (options.loss > 0) {
    machine.network_faults.add(fabric::loss_rule(options.loss, options.loss_seed));
  }
}

/// Adds a rule of the command line.
util::Result<void> add_rule(Machine& machine, std::string_view text) {
  if (fabric::is_network_rule(text)) {
    const auto added = machine.network_rules->add(text);
    return added ? util::Result<void>() : tl::unexpected(added.error());
  }
  const auto added =
      FaultRules(machine.targets.functions, machine.group.faults(), &machine.hca_faults).add(text);
  return added ? util::Result<void>() : tl::unexpected(added.error());
}

/// Adds the command line's fault rules, and opens the control socket.
util::Result<void> set_up_control(Machine& machine, const ServeOptions& options) {
  for (const auto& device : machine.devices) machine.targets.functions.push_back(device.get());
  machine.targets.faults = &machine.group.faults();
  machine.targets.hca_faults = &machine.hca_faults;
  machine.targets.loop = machine.loop.get();
  if (machine.switches.has_host_ports()) machine.targets.switches = &machine.switches;
  for (const auto& text : options.faults) {
    if (const auto added = add_rule(machine, text); !added) {
      return util::fail(fmt::format("--fault {}: {}", text, added.error().message));
    }
  }
  if (options.control.empty()) return {};
  machine.answers = std::make_unique<ServerControl>(machine.loop->events(), machine.targets);
  auto control = control::ControlSocket::listen(
      machine.loop->events(), options.control,
      [&machine](std::string_view line, const control::ControlSocket::Reply& reply) {
        machine.answers->answer(line, reply);
      });
  if (!control) return tl::unexpected(control.error());
  machine.control = *std::move(control);
  return {};
}

}  // namespace

util::Result<void> serve(const ServeOptions& options) {
  if (auto checked = check(options); !checked) return checked;
  const auto specs = parse_devices(options);
  if (!specs) return tl::unexpected(specs.error());
  const auto access = socket_access(options);
  if (!access) return tl::unexpected(access.error());
  if (options.isolate) {
    std::vector<std::string> switches;
    for (std::size_t i = 0; i != specs->size(); ++i) switches.push_back(port_of(options, i));
    return serve_isolated(options, *specs, switches, *access);
  }
  auto fabrics = join_fabrics(options);
  if (!fabrics) return tl::unexpected(fabrics.error());
  Machine machine;
  auto capture = run::make_capture(options);
  if (!capture) return tl::unexpected(capture.error());
  machine.capture = *std::move(capture);
  if (!options.trace.empty()) {
    auto trace = util::TraceWriter::create(options.trace);
    if (!trace) return util::fail("--trace " + trace.error().message);
    machine.trace = *std::move(trace);
  }
  auto loop = vfio_user::ServeLoop::create(
      {.poll = std::chrono::microseconds(options.poll_us), .measure = options.measure_turns});
  if (!loop) return tl::unexpected(loop.error());
  machine.loop = *std::move(loop);
  if (auto signals = machine.loop->events().stop_on_signals(); !signals) return signals;
  machine.group.workers().set_wake_control([&events = machine.loop->events()] { events.wake(); });
  auto connected = connect_switches(machine, options, *specs, *std::move(fabrics));
  if (!connected) return connected;
  const auto server_of = server_options(options, *access);
  if (!server_of) return tl::unexpected(server_of.error());
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    if (auto added = add_device(machine, options, i, (*specs)[i], *server_of); !added) return added;
  }
  set_up_network_rules(machine, options, *specs);
  if (auto controlled = set_up_control(machine, options); !controlled) return controlled;
  machine.loop->set_fabric(machine.switches);
  std::puts("ready");
  std::fflush(stdout);
  machine.loop->run();
  return {};
}

}  // namespace softhca::server
