#include "cli/control_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "fabric/fault_table.h"
#include "hca/fault_kinds.h"
#include "run/number_options.h"
#include "sdxi/fault_rule.h"
#include "server/control.h"

namespace softhca::cli {

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  auto* command =
      app.add_subcommand("inspect", "Show the functions of a server as a tree, while it runs");
  command->add_option("CONTROL", options.path, "What the server was given as --control")
      ->required();
  command->add_option("FUNCTION", options.function, "The name of one function (default: all)");
  command->add_flag("--json", options.json, "As JSON");
  command
      ->add_option("--from", options.from,
                   "Of each kind of object those with this number or a higher one")
      ->transform(run::whole_number());
  command
      ->add_option(
          "--count", options.count,
          fmt::format("How many objects of each kind, at most {}", util::Inspection::kCountMax))
      ->transform(run::whole_number(1, util::Inspection::kCountMax))
      ->capture_default_str();
  command->footer(
      "Of each kind it says how many there are, and with what --from the next ones come. The\n"
      "functions run on meanwhile; an answer has 4 MiB (of one function 1 MiB) and takes 2 s\n"
      "at most. Memory of a guest that is not mapped is not read.");
  return command;
}

int run_inspect(const InspectOptions& options) {
  control::InspectRequest request{.function = options.function, .show = {}};
  request.show.json = options.json;
  request.show.from = options.from;
  request.show.count = options.count;
  return server::ask_and_print(options.path, control::to_line(request));
}

CLI::App* add_fault(CLI::App& app, FaultOptions& options) {
  auto* command =
      app.add_subcommand("fault", "Inject faults into the functions of a server, and the network");
  command->footer(
      "A RULE for an SDXI function is " + std::string(sdxi::kFaultHelp) +
      ".\nA RULE for a ConnectX, RSNIC or JingZhao is " + hca::fault_help() +
      ".\nA RULE for the network is " + fabric::network_fault_help() +
      ".\nnth counts the events that the rest of the rule matches. list tells how often "
      "each rule matched and fired.");
  command->add_option("CONTROL", options.path, "What the server was given as --control")
      ->required();
  command->require_subcommand(1);
  const auto verb = [&options, command](const char* name, const char* help) {
    auto* sub = command->add_subcommand(name, help);
    sub->callback([&options, name] { options.verb = name; });
    return sub;
  };
  verb("add", "Add a rule; prints its number")
      ->add_option("RULE", options.rule, "What fails, and how")
      ->required();
  verb("list", "Print the rules with their counts");
  verb("remove", "Remove a rule: what it held back goes on")
      ->add_option("NUMBER", options.number, "Its number in the list")
      ->required();
  verb("clear", "Print the rules with their counts, and remove them all");
  return command;
}

int run_fault(const FaultOptions& options) {
  auto request = "fault " + options.verb;
  for (const auto& argument : {options.rule, options.number}) {
    if (!argument.empty()) request += " " + argument;
  }
  return server::ask_and_print(options.path, request);
}

}  // namespace softhca::cli
