#include "cli/serve_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "fabric/fault_table.h"
#include "hca/fault_kinds.h"
#include "run/number_options.h"
#include "run/rule_files.h"
#include "sdxi/fault_rule.h"
#include "server/device_spec.h"
#include "server/sdxi_keys.h"
#include "util/log_writer.h"

namespace softhca::cli {
namespace {

constexpr const char* kServeFooter = R"(
Keys of --device sdxi and sdxi-vf:

{}
Each device waits on its socket for one client at a time, e.g. QEMU 10.1 or newer:

  qemu-system-x86_64 -machine q35,memory-backend=mem \
    -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \
    -device '{{"driver":"vfio-user-pci","socket":{{"path":"/tmp/hca0","type":"unix"}}}}' ...

(guest/run does all of it.) When a client goes, its device is reset and waits for the next.
SIGINT or SIGTERM end the server.)";

void add_loss(CLI::App& command, server::ServeOptions& options) {
  command
      .add_option("--loss", options.loss,
                  "Probability that a frame is lost on its way from a device to its switch [0]")
      ->transform(run::real_number(0, 1));
  command.add_option("--loss-seed", options.loss_seed, "Seed that selects the lost frames [1]")
      ->transform(run::whole_number());
}

/// Largest --pcap-size, 2^60. CLI11 takes a negative size for one near 2^64.
constexpr std::uint64_t kCaptureMax = std::uint64_t{1} << 60;

void add_capture(CLI::App& command, server::ServeOptions& options) {
  command.add_option("--pcap", options.pcap,
                     "Capture everything that crosses the switches to this file (pcapng)");
  command
      .add_option("--pcap-size", options.pcap_size,
                  "Maximum size of the file, e.g. 64M. Then the capture ends, or goes on in the "
                  "next file of --pcap-files")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, kCaptureMax).description(""));
  command
      .add_option("--pcap-files", options.pcap_files,
                  "Capture to a ring of N files, FILE0, FILE1, ...: when all are full, the "
                  "oldest is overwritten (as with tcpdump -C and -W)")
      ->transform(run::whole_number(0, UINT32_MAX));
}

}  // namespace

CLI::App* add_serve(CLI::App& app, server::ServeOptions& options) {
  auto* command = app.add_subcommand("serve", "Serve devices on vfio-user sockets");
  command->footer(fmt::format(kServeFooter, server::sdxi_keys_help()));
  command
      ->add_option("--device", options.devices,
                   std::string("A device: ") + std::string(server::kDeviceHelp))
      ->required()
      ->allow_extra_args(false);
  command
      ->add_option("--socket", options.sockets,
                   "Path of the device's socket; one for each --device, in order")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--socket-mode", options.socket_mode,
                      "Permissions of the device sockets, octal [0600]");
  command->add_option("--socket-group", options.socket_group,
                      "Group of the device sockets (default: the process's)");
  command
      ->add_option("--port", options.ports,
                   "Network of the device's port: switch[:NAME], a switch inside this process "
                   "(default: one switch for all), fabric:NAME, the network of softhca run "
                   "--fabric NAME, or a network of this machine: tap:NAME, a TAP device, or "
                   "packet:INTERFACE, an Ethernet interface. One for each --device; the last one "
                   "also applies to the rest")
      ->allow_extra_args(false);
  command
      ->add_option_function<std::string>(
          "--link",
          [&options](const std::string& link) { options.infiniband = link == "infiniband"; },
          "Link type of ports that support both (those of jingzhao). An InfiniBand switch "
          "includes a subnet manager [ethernet]")
      ->check(CLI::IsMember({"infiniband", "ethernet"}));
  add_loss(*command, options);
  add_capture(*command, options);
  command->add_option("--trace", options.trace,
                      "Write each step of each device to this file, from doorbell to interrupt: "
                      "as text, or in Perfetto's format if the name ends in .json. Slow");
  command
      ->add_option("--poll-us", options.poll_us,
                   "Microseconds to poll for a client's next message before sleeping, if that "
                   "has paid off before; 0: never poll [20]")
      ->transform(run::whole_number(0, UINT32_MAX));
  command->add_option("--control", options.control,
                      "A socket for softhca inspect and softhca fault");
  command
      ->add_option(
          "--fault", options.faults,
          fmt::format("A fault to inject, or @FILE with one on each line. Into SDXI functions: {}. "
                      "Into ConnectX, RSNIC and JingZhao: {}. Into the network: {}",
                      sdxi::kFaultHelp, hca::fault_help(), fabric::network_fault_help()))
      ->allow_extra_args(false);
  command->add_flag("--isolate", options.isolate,
                    "Serve each guest's devices (those with the same guest=) in a process of its "
                    "own that may do nothing else");
  command->add_option("--device-program", options.program)->group("");  // for tests
  command->add_flag("--measure-turns", options.measure_turns,
                    "Measure each turn of the loop: softhca inspect shows the longest");
  command->add_flag("-v,--verbose", options.verbose, "Log every command of every driver");
  return command;
}

namespace {

util::Result<void> serve_with_rules(server::ServeOptions options) {
  auto rules = run::read_rules(options.faults);
  if (!rules) return tl::unexpected(rules.error());
  options.faults = *std::move(rules);
  return server::serve(options);
}

}  // namespace

int run_serve(const server::ServeOptions& options) {
  if (options.verbose) util::set_log_level(util::LogLevel::kDebug);
  // If the reader of standard output stops or ends, the guests must go on.
  ::signal(SIGPIPE, SIG_IGN);
  util::LogWriter log(STDERR_FILENO);
  util::set_log_sink([&log](auto level, auto text) { log.write(level, text); });
  const auto done = serve_with_rules(options);
  util::set_log_sink(nullptr);
  if (done) return 0;
  std::fprintf(stderr, "softhca: %s\n", done.error().message.c_str());
  return 1;
}

}  // namespace softhca::cli
