// The softhca program.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/control_commands.h"
#include "cli/device_spec.h"
#include "cli/docs.h"
#include "cli/explain.h"
#include "cli/sdxi_copy.h"
#include "cli/serve.h"
#include "sdxi/fault_rule.h"
#include "util/log.h"

namespace {

constexpr const char* kServeFooter = R"(
Each device waits on its socket for one client at a time, e.g. QEMU 10.1 or newer:

  qemu-system-x86_64 -machine q35,memory-backend=mem \
    -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \
    -device '{"driver":"vfio-user-pci","socket":{"path":"/tmp/hca0","type":"unix"}}' ...

(guest/run does all of it.) When a client goes, its device is reset and waits for the next.
SIGINT or SIGTERM end the server.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"PCIe devices in software, for the drivers of the hardware."};
  app.set_version_flag("--version", "softhca " SOFTHCA_VERSION);
  app.require_subcommand(1);

  softhca::cli::ServeOptions serve;
  bool verbose = false;
  auto* serve_command = app.add_subcommand("serve", "Serve devices on vfio-user sockets");
  serve_command->footer(kServeFooter);
  serve_command
      ->add_option("--device", serve.devices,
                   std::string("A device: ") + std::string(softhca::cli::kDeviceHelp))
      ->required()
      ->allow_extra_args(false);
  serve_command
      ->add_option("--socket", serve.sockets, "Its socket's path; one for each --device, in order")
      ->required()
      ->allow_extra_args(false);
  serve_command
      ->add_option("--port", serve.ports,
                   "What its port is plugged into: switch[:NAME], a switch inside this process "
                   "(default: all on one); one for each --device, the last one serves the rest")
      ->allow_extra_args(false);
  serve_command->add_option("--pcap", serve.pcap,
                            "Capture everything that crosses the switches (pcapng)");
  serve_command->add_option("--poll-us", serve.poll_us,
                            "Microseconds to look for a client's next message before going to "
                            "sleep, where that has paid before; 0: never [20]");
  serve_command->add_option("--control", serve.control,
                            "A socket for softhca inspect and softhca fault");
  serve_command
      ->add_option("--fault", serve.faults,
                   std::string("A fault to inject into SDXI functions: ") +
                       std::string(softhca::sdxi::kFaultHelp))
      ->allow_extra_args(false);
  serve_command->add_flag("-v,--verbose", verbose, "Log every command of every driver");

  auto* sdxi = app.add_subcommand("sdxi", "Use an SDXI function");
  sdxi->require_subcommand(1);
  softhca::cli::SdxiCopyOptions copy;
  auto* copy_command = softhca::cli::add_sdxi_copy(*sdxi, copy);
  softhca::cli::InspectOptions inspect;
  const auto* inspect_command = softhca::cli::add_inspect(app, inspect);
  softhca::cli::FaultOptions fault;
  const auto* fault_command = softhca::cli::add_fault(app, fault);
  softhca::cli::ExplainOptions explain;
  const auto* explain_command = softhca::cli::add_explain(app, explain);
  softhca::cli::DocsOptions docs;
  const auto* docs_command = softhca::cli::add_docs(app, docs);

  CLI11_PARSE(app, argc, argv);

  if (copy_command->parsed()) return softhca::cli::run_sdxi_copy(copy);
  if (inspect_command->parsed()) return softhca::cli::run_inspect(inspect);
  if (fault_command->parsed()) return softhca::cli::run_fault(fault);
  if (explain_command->parsed()) return softhca::cli::run_explain(explain);
  if (docs_command->parsed()) return softhca::cli::run_docs(docs);

  if (verbose) softhca::util::set_log_level(softhca::util::LogLevel::kDebug);
  const auto done = softhca::cli::serve(serve);
  if (!done) {
    std::fprintf(stderr, "softhca: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
