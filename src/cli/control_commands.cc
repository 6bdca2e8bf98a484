#include "cli/control_commands.h"

#include "cli/control.h"
#include "sdxi/fault_rule.h"

namespace softhca::cli {

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  auto* command =
      app.add_subcommand("inspect", "Show the functions of a server as a tree, while it runs");
  command->add_option("PATH", options.path, "What the server was given as --control")->required();
  command->add_option("FUNCTION", options.function, "The name of one function (default: all)");
  command->add_flag("--json", options.json, "As JSON");
  return command;
}

int run_inspect(const InspectOptions& options) {
  std::string request = "inspect";
  if (options.json) request += " --json";
  if (!options.function.empty()) request += " " + options.function;
  return ask_and_print(options.path, request);
}

CLI::App* add_fault(CLI::App& app, FaultOptions& options) {
  auto* command = app.add_subcommand("fault", "Inject faults into SDXI functions of a server");
  command->footer(
      "A RULE is " + std::string(sdxi::kFaultHelp) +
      ".\nnth counts the events that the rest of the rule matches. list tells how often "
      "each rule matched and fired.");
  command->add_option("PATH", options.path, "What the server was given as --control")->required();
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
  return ask_and_print(options.path, request);
}

}  // namespace softhca::cli
