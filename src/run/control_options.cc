#include "run/control_options.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "fabric/fault_table.h"

namespace softhca::run {

void add_control_options(CLI::App& command, ControlOptions& options, const std::string& whose) {
  command
      .add_option(
          "--control", options.socket,
          "Create this socket for softhca inspect and softhca fault, for all processes of " + whose)
      ->type_name("PATH");
  command
      .add_option("--fault", options.faults,
                  "How the network fails, or @FILE with a rule on each line: " +
                      fabric::network_fault_help())
      ->type_name("RULE")
      ->allow_extra_args(false);
}

util::Result<std::vector<std::string>> Controls::create(const ControlOptions& options,
                                                        const std::vector<std::string>& rules,
                                                        const std::string& fabric,
                                                        std::vector<std::string> ports) {
  std::vector<std::string> variables;
  if (rules.empty() && options.socket.empty()) return variables;
  auto faults = RunFaults::create(rules, std::move(ports));
  if (!faults) return tl::unexpected(faults.error());
  faults_.emplace(*std::move(faults));
  variables.push_back(faults_->variable());
  if (options.socket.empty()) return variables;
  auto control = RunControl::create(options.socket, fabric, &faults_->book());
  if (!control) return tl::unexpected(control.error());
  control_ = *std::move(control);
  variables.push_back("SOFTHCA_CONTROL=" + control_->directory());
  return variables;
}

}  // namespace softhca::run
