// The softhca program.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command_line.h"
#include "cli/control_commands.h"
#include "cli/docs.h"
#include "cli/env_command.h"
#include "cli/explain.h"
#include "cli/perf_command.h"
#include "cli/rsnic_commands.h"
#include "cli/run_command.h"
#include "cli/sdxi_copy.h"
#include "cli/serve_command.h"
#include "os/process_descriptors.h"
#include "server/isolate/device_process.h"

int main(int argc, char** argv) {
  using namespace softhca::cli;
  using namespace softhca::server;
  softhca::os::fill_standard_descriptors();
  CLI::App app{"PCIe devices in software, for the drivers of the hardware."};
  app.set_version_flag("--version", "softhca " SOFTHCA_VERSION);
  app.require_subcommand(1);

  ServeOptions serve;
  const auto* serve_command = add_serve(app, serve);
  ProcessOptions process;
  const auto* process_command = add_process(app, process);
  RunOptions run;
  const auto* run_command = add_run(app, run);
  argc = take_program(*run_command, argc, argv, run);
  EnvOptions env;
  const auto* env_command = add_env(app, env);
  PerfOptions perf;
  const auto* perf_command = add_perf(app, perf);
  auto* sdxi = app.add_subcommand("sdxi", "Use an SDXI function");
  sdxi->require_subcommand(1);
  SdxiCopyOptions copy;
  const auto* copy_command = add_sdxi_copy(*sdxi, copy);
  RsnicOptions rsnic;
  const auto* rsnic_command = add_rsnic(app, rsnic);
  InspectOptions inspect;
  const auto* inspect_command = add_inspect(app, inspect);
  FaultOptions fault;
  const auto* fault_command = add_fault(app, fault);
  ExplainOptions explain;
  const auto* explain_command = add_explain(app, explain);
  DocsOptions docs;
  const auto* docs_command = add_docs(app, docs);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "softhca: %s\n", why_not_parsed(app, argc, argv, error).c_str());
    return 1;
  }

  if (serve_command->parsed()) return run_serve(serve);
  if (process_command->parsed()) return run_process(process);
  if (run_command->parsed()) return run_run(run);
  if (env_command->parsed()) return run_env(env);
  if (perf_command->parsed()) return run_perf(perf);
  if (copy_command->parsed()) return run_sdxi_copy(copy);
  if (rsnic_command->parsed()) return run_rsnic(rsnic);
  if (inspect_command->parsed()) return run_inspect(inspect);
  if (fault_command->parsed()) return run_fault(fault);
  if (explain_command->parsed()) return run_explain(explain);
  if (docs_command->parsed()) return run_docs(docs);
  return 0;
}
