#include "cli/rsnic_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "rsnic/command_sequence.h"
#include "rsnic/csr_inspect.h"
#include "rsnic/options.h"
#include "rsnic/sizing.h"
#include "server/control.h"

namespace softhca::cli {
namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "softhca: %s\n", message.c_str());
  return 1;
}

int print_csr(const RsnicOptions& options) {
  const auto answer = server::ask_server(options.path, "inspect " + options.function);
  if (!answer) return fail(answer.error().message);
  const auto report = rsnic::csr_report(*answer);
  if (report.empty()) return fail(options.function + " is no RSNIC: it has no CSR tables");
  std::fputs(report.c_str(), stdout);
  return 0;
}

int print_commands(const RsnicOptions& options) {
  std::ifstream file(options.path);
  std::stringstream trace;
  trace << file.rdbuf();
  if (!file) return fail(options.path + " cannot be read");
  const auto recorded = rsnic::commands_of_a_program(trace.str(), options.function);
  if (recorded.empty()) return fail(options.path + " has no RDMA program of " + options.function);
  const auto report = rsnic::compare_sequence(recorded);
  std::fputs(report.text.c_str(), stdout);
  if (!report.complete) return fail("commands of table 4-15 are missing");
  if (!report.explained) return fail("a difference has no cause");
  return 0;
}

std::string source_of(const rsnic::CsrRow& row) {
  const auto* what = row.source == rsnic::CsrSource::kCapability ? "capability"
                     : row.source == rsnic::CsrSource::kInput    ? "input"
                     : row.source == rsnic::CsrSource::kPages    ? "input or output"
                                                                 : "output";
  if (row.size != 0) return fmt::format("{} {:X}h", what, row.at);
  if (row.source_hi == row.source_lo) {
    return fmt::format("{} {:X}h {}", what, row.at, row.source_hi);
  }
  return fmt::format("{} {:X}h {}:{}", what, row.at, row.source_hi, row.source_lo);
}

}  // namespace

CLI::App* add_rsnic(CLI::App& app, RsnicOptions& options) {
  auto* command = app.add_subcommand("rsnic", "Compare an RSNIC with its document");
  command->require_subcommand(1);
  auto* csr = command->add_subcommand(
      "csr", "The CSR tables 4.1.1 to 4.1.20 of a running RSNIC, beside the printed values");
  csr->add_option("PATH", options.path, "What the server was given as --control")->required();
  csr->add_option("FUNCTION", options.function, "The name of the RSNIC")->capture_default_str();
  csr->callback([&options] { options.verb = "csr"; });
  auto* sizing = command->add_subcommand(
      "sizing", "The memory tables of chapter 9, from the card's limits, beside the printed ones");
  sizing->callback([&options] { options.verb = "sizing"; });
  auto* commands = command->add_subcommand(
      "commands", "The commands of an RDMA program in a trace of an RSNIC, beside table 4-15");
  commands->add_option("TRACE", options.path, "What the server was given as --trace")->required();
  commands->add_option("FUNCTION", options.function, "The name of the RSNIC")
      ->capture_default_str();
  commands->callback([&options] { options.verb = "commands"; });
  return command;
}

int run_rsnic(const RsnicOptions& options) {
  if (options.verb == "csr") return print_csr(options);
  if (options.verb == "commands") return print_commands(options);
  std::fputs(rsnic::sizing_report().c_str(), stdout);
  return 0;
}

std::string csr_page() {
  std::string page;
  std::string_view section;
  for (const auto& row : rsnic::csr_table()) {
    if (row.section != section) {
      page +=
          fmt::format("{}### {} {}\n\nof {}\n\n| CSR | printed | live value |\n|---|---|---|\n",
                      section.empty() ? "" : "\n", row.section, row.title, to_string(row.command));
      section = row.section;
    }
    const auto printed = row.printed ? fmt::format("{:X}h", *row.printed) : std::string();
    page += fmt::format("| {} | {} | {} |\n", row.place(), printed, source_of(row));
  }
  return page;
}

std::string sizing_page() {
  std::string page =
      "| figure | | of this card | bytes | printed | correct |\n|---|---|---|---|---|---|\n";
  for (const auto& row : rsnic::sizing(rsnic::device_options().limits)) {
    page += fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.figure, row.name, row.factors,
                        rsnic::show_bytes(row.model), row.printed, rsnic::show_bytes(row.correct));
  }
  return page;
}

}  // namespace softhca::cli
