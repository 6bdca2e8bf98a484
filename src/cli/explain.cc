#include "cli/explain.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

#include "connectx/command/refusals.h"
#include "connectx/queue/vendor_error.h"
#include "connectx/queue/wqe_fault.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "spec/sdxi/error_log.h"

namespace softhca::cli {
namespace {

constexpr std::string_view kHelp =
    "The number is a syndrome that a guest's kernel printed for a refused command, or, after cqe,\n"
    "the syndrome, vendor_err or reason of an error CQE, or the dword of it that libmlx5 dumps\n"
    "(a1008813), or, after sdxi, the class of an SDXI error log record. Hexadecimal with 0x, or\n"
    "with 8 digits as logs print it; else decimal.";

std::optional<std::uint32_t> to_number(std::string_view text) {
  constexpr std::size_t kDwordDigits = 8;
  const bool prefixed = text.starts_with("0x") || text.starts_with("0X");
  const bool hex = prefixed || text.size() == kDwordDigits;
  if (prefixed) text.remove_prefix(2);
  std::uint32_t number = 0;
  const auto [at, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, hex ? 16 : 10);
  if (text.empty() || error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<9} {}\n", name, value);
}

std::string as_syndrome(std::uint32_t number) {
  const auto name = to_string(static_cast<spec::connectx::cqe_syndrome>(number));
  return name.empty() ? "" : fmt::format("{:#04x} as syndrome: {}\n", number, name);
}

/// The number as a vendor error syndrome of ConnectX hardware.
std::string as_vendor_err(std::uint32_t number) {
  std::string text;
  for (const auto& error : connectx::vendor_errors()) {
    if (error.number != number) continue;
    text += fmt::format("{:#04x} as vendor_err of a ConnectX, with syndrome {} ({:#04x})\n", number,
                        to_string(error.syndrome), static_cast<unsigned>(error.syndrome));
    text += line("meaning", error.text);
    text += line("source", error.source);
  }
  return text;
}

/// The number as softhca's own reason.
std::string as_reason(std::uint32_t number) {
  const auto meaning = connectx::explain_reason(number);
  if (!meaning) return "";
  return fmt::format("{:#04x} as softhca's reason ({}): {}\n", number, number, meaning->of) +
         line("reason", meaning->text) + line("section", meaning->section);
}

/// The third dword from the end of the 16 that libmlx5 dumps. Empty unless it can be an error's.
std::string dword_of_cqe(std::uint32_t dword) {
  using Layout = spec::connectx::cqe_error;
  util::Struct<Layout> cqe;
  util::store_be32(&cqe.bytes()[Layout::syndrome.kOffset], dword);
  const auto syndrome = as_syndrome(cqe.get(Layout::syndrome));
  if (syndrome.empty()) return "";
  return syndrome + as_vendor_err(cqe.get(Layout::vendor_error_syndrome)) +
         as_reason(cqe.get(Layout::hw_error_syndrome));
}

}  // namespace

util::Result<std::string> explain_command(std::uint32_t syndrome) {
  const auto meaning = connectx::explain_syndrome(syndrome);
  if (!meaning) {
    return util::fail(fmt::format("no command is refused with syndrome {:#010x}", syndrome));
  }
  const bool retired = !meaning->since.empty();
  auto text = fmt::format("{:#010x}: a ConnectX command {}\n", syndrome,
                          retired ? "was refused, by an older version" : "is refused");
  text += line("reason", meaning->text);
  text += line("section", meaning->section);
  text += line("status", fmt::format("{} ({:#04x})", to_string(meaning->status),
                                     static_cast<unsigned>(meaning->status)));
  text += line("commands", meaning->commands.empty() ? "any" : meaning->commands);
  if (retired) {
    text += line("now", meaning->since);
  } else {
    text += line("checked", fmt::format("src/{}", meaning->sources));
  }
  text += line("docs", "docs/connectx-commands.md");
  return text;
}

util::Result<std::string> explain_cqe(std::uint32_t number) {
  const auto text = number > 0xFF ? dword_of_cqe(number)
                                  : as_syndrome(number) + as_vendor_err(number) + as_reason(number);
  if (text.empty()) return util::fail(fmt::format("no error CQE has the number {:#04x}", number));
  return text;
}

util::Result<std::string> explain_sdxi(std::uint32_t err_class) {
  using Class = spec::sdxi::err_class;
  const auto name_of = [](std::uint32_t number) {
    return number > 0xFFFF ? std::string_view() : to_string(static_cast<Class>(number));
  };
  if (name_of(err_class).empty()) {
    return util::fail(fmt::format("SDXI Table 3-11 has no class {:#06x}", err_class));
  }
  auto text = fmt::format("{:#06x}: an SDXI error log record\n", err_class);
  text += line("err_class", name_of(err_class));
  // The first hex digit is a general class, the second and third a case of it; the last is 0.
  std::string general;
  // no format: digits of a number
  for (std::uint32_t mask = 0xFF00; mask >= 0xF000; mask = mask << 4 & 0xFFFF) {
    const auto wider = err_class & mask;
    if (wider == err_class || wider == 0 || name_of(wider).empty()) continue;
    general += fmt::format("{}{} ({:#06x})", general.empty() ? "" : ", ", name_of(wider), wider);
  }
  if (!general.empty()) text += line("a case of", general);
  text += line("section", "SDXI Table 3-11");
  return text;
}

CLI::App* add_explain(CLI::App& app, ExplainOptions& options) {
  auto* command = app.add_subcommand("explain", "Say what a number from a guest's log means");
  command->footer(std::string(kHelp));
  command->add_option("WORDS", options.words, "[command|cqe|sdxi] NUMBER")->expected(1, 2);
  return command;
}

int run_explain(const ExplainOptions& options) {
  using Explain = util::Result<std::string> (*)(std::uint32_t);
  static const std::map<std::string, Explain> kKinds{
      {"cqe", explain_cqe}, {"sdxi", explain_sdxi}, {"command", explain_command}};
  const auto& words = options.words;
  if (words.empty() || (words.size() == 1 && kKinds.contains(words.front()))) {
    std::fputs("softhca: explain: which number? softhca explain [command|cqe|sdxi] NUMBER\n",
               stderr);
    return 1;
  }
  const auto kind = kKinds.find(words.size() == 2 ? words.front() : "command");
  const auto number = to_number(words.back());
  const auto answer =
      kind == kKinds.end() ? util::fail("'" + words.front() + "' is not command, cqe or sdxi")
      : !number            ? util::fail("'" + words.back() + "' is no number from 0 to 0xffffffff")
                           : kind->second(*number);
  if (!answer) {
    std::fprintf(stderr, "softhca: %s\n", answer.error().message.c_str());
    return 1;
  }
  std::fputs(answer->c_str(), stdout);
  return 0;
}

}  // namespace softhca::cli
