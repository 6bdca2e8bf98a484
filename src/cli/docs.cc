#include "cli/docs.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "cli/rsnic_commands.h"
#include "connectx/command/command_table.h"
#include "connectx/function/capabilities.h"
#include "connectx/function/limit_table.h"
#include "fabric/fault_table.h"
#include "hca/fault_kinds.h"
#include "rsnic/csr.h"
#include "rsnic/options.h"
#include "server/hca_functions.h"
#include "server/sdxi_keys.h"

namespace softhca::cli {
namespace {

using connectx::CommandSpec;
using connectx::Coverage;
using connectx::HcaState;

std::string_view when(const CommandSpec& spec) {
  const bool before_enable = spec.allowed_in(HcaState::kDisabled);
  const bool before_init = spec.allowed_in(HcaState::kEnabled);
  const bool after_init = spec.allowed_in(HcaState::kInitialized);
  if (before_enable) return after_init ? "always" : "before ENABLE_HCA";
  if (before_init) return after_init ? "after ENABLE_HCA" : "before INIT_HCA";
  return "after INIT_HCA";
}

std::string row(const CommandSpec& spec) {
  const auto words = spec.words.empty() ? "" : fmt::format(": {}", spec.words);
  const auto shape = spec.handler == nullptr ? std::string("| |")
                                             : fmt::format("{:#x} / {:#x} | {}", spec.min_input,
                                                           spec.min_output, when(spec));
  return fmt::format("| {:#05x} | {} | {} | {} | {}{} |\n", static_cast<unsigned>(spec.opcode),
                     spec.name(), spec.section, shape, to_string(spec.coverage), words);
}

template <class Filter>
std::string table(std::string_view title, Filter filter) {
  std::map<Coverage, unsigned> counts;
  std::string rows;
  unsigned total = 0;
  for (const auto& spec : connectx::command_table()) {
    if (!filter(spec)) continue;
    ++total;
    ++counts[spec.coverage];
    rows += row(spec);
  }
  std::string text = fmt::format("## {}\n\n{} commands:", title, total);
  const char* separator = " ";
  for (const auto& [coverage, count] : counts) {
    text += fmt::format("{}{} {}", separator, count, to_string(coverage));
    separator = ", ";
  }
  return text +
         ".\n\n| opcode | command | section | least input / output | when | coverage |\n"
         "|---|---|---|---|---|---|\n" +
         rows;
}

std::string meaning(connectx::LimitKind kind, std::string_view what) {
  using enum connectx::LimitKind;
  switch (kind) {
    case kLogObjects:
      return fmt::format("2^n {}", what);
    case kObjects:
      return fmt::format("n {}", what);
    case kField:
      return fmt::format("{}: at most n", what);
    case kLogField:
      return fmt::format("{}: at most 2^n", what);
    case kLeast:
      return fmt::format("{}: at least n", what);
    case kIndex:
      return fmt::format("{}: below n", what);
    case kBytes:
      return fmt::format("{}: at most n bytes", what);
    case kTold:
    case kBit:
      break;
  }
  return std::string(what);
}

}  // namespace

std::string commands_page() {
  const auto of_the_manual = [](const CommandSpec& spec) {
    return spec.section.starts_with("PRM");
  };
  return table("Commands of the manual (PRM Table 127)", of_the_manual) + "\n" +
         table("Other commands of the driver that exist here",
               [&](const auto& spec) { return !of_the_manual(spec) && spec.handler != nullptr; }) +
         "\n" + table("Other commands of the driver that do not exist here", [&](const auto& spec) {
           return !of_the_manual(spec) && spec.handler == nullptr;
         });
}

std::string limits_page() {
  std::string limits = "| capability | | limits | of |\n|---|---|---|---|\n";
  std::string others = "| capability | | |\n|---|---|---|\n";
  for (const auto& info : connectx::capability_table()) {
    if (info.limit == nullptr) {
      others += fmt::format("| {} | {} | {} |\n", info.name, info.value, info.what);
    } else {
      limits += fmt::format("| {} | {} | {} | {} |\n", info.name, info.value,
                            meaning(info.kind, info.what), info.commands);
    }
  }
  return "## Limits\n\n" + limits + "\n## Capabilities that limit nothing\n\n" + others;
}

std::string rsnic_limits_page() {
  using Cap = spec::connectx::hca_cap;
  constexpr auto kGroup = connectx::Capabilities::Type::GENERAL;
  const auto options = rsnic::device_options();
  const connectx::Capabilities capabilities(options.limits, options.model);
  const util::View<Cap> image(capabilities.maximum(kGroup));
  const rsnic::CsrFile file;
  std::string page = "| CSR | printed | here | | of |\n|---|---|---|---|---|\n";
  for (const auto& row : rsnic::csr_table()) {
    if (row.source != rsnic::CsrSource::kCapability) continue;
    const auto field = std::ranges::find_if(Cap::kFields, [&](const auto& f) {
      return f.offset == row.at && f.hi == row.source_hi && f.lo == row.source_lo;
    });
    const auto info = std::ranges::find_if(connectx::capability_table(), [&](const auto& known) {
      return known.group == kGroup && known.name == field->name;
    });
    const bool known = info != connectx::capability_table().end();
    const auto words = !known                   ? std::string("not there: 0")
                       : info->limit == nullptr ? std::string(info->what)
                                                : meaning(info->kind, info->what);
    page += fmt::format("| {} | {:X}h | {} | {} | {} |\n", row.place(), row.printed.value_or(0),
                        *file.value(row, image), words, known ? info->commands : "");
  }
  return page;
}

CLI::App* add_docs(CLI::App& app, DocsOptions& options) {
  auto* command = app.add_subcommand("docs", "Print a page of the documentation")->group("");
  command
      ->add_option("PAGE", options.page,
                   "commands, limits, csr, sizing, rsnic-limits, sdxi-keys, faults-hca, "
                   "faults-jingzhao or network-faults")
      ->required();
  return command;
}

int run_docs(const DocsOptions& options) {
  const std::map<std::string_view, std::string (*)()> pages{
      {"commands", commands_page},
      {"limits", limits_page},
      {"csr", csr_page},
      {"rsnic-limits", rsnic_limits_page},
      {"sdxi-keys", server::sdxi_keys_page},
      {"sizing", sizing_page},
      {"faults-hca", hca::fault_table},
      {"faults-jingzhao", server::jingzhao_faults_page},
      {"network-faults", fabric::network_faults_page}};
  const auto page = pages.find(options.page);
  if (page == pages.end()) {
    std::fprintf(stderr, "softhca: there is no page '%s'\n", options.page.c_str());
    return 1;
  }
  std::fputs(page->second().c_str(), stdout);
  return 0;
}

}  // namespace softhca::cli
