#include "rsnic/command_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "rsnic/modules.h"

namespace softhca::rsnic {
namespace {

using spec::connectx::command_opcode;
using enum command_opcode;

constexpr PrintedCommand kPrinted[] = {
    {ALLOC_UAR, "ALLOC_UAR", "User Address Register (Allocated from Idx 0x0 - 0x7)", ""},
    {ALLOC_TRANSPORT_DOMAIN, "ALLOC_TRANSPORT", "", ""},
    {QUERY_NIC_VPORT_CONTEXT, "QUERY_NIC_VPORT_CONTEXT", "", ""},
    {QUERY_ADAPTER, "QUERY_ADAPTER", "", ""},
    {ACCESS_REG, "ACCESS_REG", "", ""},
    {ALLOC_PD, "ALLOC_PD", "", ""},
    {CREATE_CQ, "CREATE_CQ", "", ""},
    {CREATE_QP, "CREATE_QP", "Used bfregion 0xC, uar_index 0x0", ""},
    {RST2INIT_QP, "RST2INIT_QP", "", ""},
    {INIT2RTR_QP, "INIT2RTR_QP", "", ""},
    {RTR2RTS_QP, "RTR2RTS_QP", "", ""},
    {MODIFY_CQ, "MODIFY_CQ", "", "the moderation of a CQ is left as it was created"},
    {QP_2RST, "2RST_QP", "", ""},
    {DESTROY_QP, "DESTROY_QP", "", ""},
    {DESTROY_CQ, "DESTROY_CQ", "", ""},
    {DEALLOC_PD, "DEALLOC_PD", "", ""},
    {DEALLOC_TRANSPORT_DOMAIN, "DEALLOC_TRANSPORT_DOMAIN", "", ""},
    {DEALLOC_UAR, "DEALLOC_UAR", "", ""},
};

/// Why today's sequence has a command that the printed one lacks, or has it at another position.
struct Cause {
  command_opcode opcode;
  std::string_view words;
  std::size_t more = SIZE_MAX;  ///< most extra commands that it explains, besides the printed one
  bool moves = false;           ///< also explains a different position of the printed one
};
constexpr std::string_view kUmrQp =
    "one more: the kernel makes its QP for UMR when the first program registers memory";
constexpr std::string_view kPageTrial =
    "the kernel tries once whether a doorbell page's BlueFlame buffer takes WQEs whole";
/// Most doorbell pages of a process: the dynamic ones of today's library.
constexpr std::size_t kPages = 16;
constexpr Cause kCauses[] = {
    {ALLOC_UAR, "the library of today gets doorbell pages when it makes queues", kPages, true},
    {DEALLOC_UAR, "one for each doorbell page of the process", kPages, true},
    {ALLOC_TRANSPORT_DOMAIN, "the first thing of a process", 1, true},
    {DEALLOC_TRANSPORT_DOMAIN, "it goes before the doorbell pages", 1, true},
    {QUERY_NIC_VPORT_CONTEXT, "the driver of today reads it for each query of device and port",
     SIZE_MAX, true},
    {QUERY_ADAPTER, "the driver of today reads it for each query of the device", SIZE_MAX, true},
    {ACCESS_REG, "the driver of today reads the port's state and speed for each query of the port",
     SIZE_MAX, true},
    {QUERY_VPORT_STATE, "whether the port is up, for queries of the port"},
    {QUERY_HCA_CAP, "capabilities, for queries of the device"},
    {QUERY_ROCE_ADDRESS, "the GID table, for queries of the port"},
    {SET_ROCE_ADDRESS, "the kernel keeps the GID table, and an address has come or gone"},
    {CREATE_MKEY, "registers the program's memory: the driver of the document had a cache of keys",
     8},
    {DESTROY_MKEY, "the end of that key, which goes back to no cache", 8},
    {QUERY_MKEY, "the kernel looks at a key", 8},
    {CREATE_CQ, "one more: of the kernel's QP for UMR, or of its trial of a doorbell page", 2},
    {CREATE_SQ, kPageTrial, 1},
    {MODIFY_SQ, kPageTrial, 1},
    {DESTROY_SQ, kPageTrial, 1},
    {CREATE_QP, kUmrQp, 1},
    {RST2INIT_QP, kUmrQp, 1},
    {INIT2RTR_QP, kUmrQp, 1},
    {RTR2RTS_QP, kUmrQp, 1},
    {DESTROY_CQ, "one more CQ", 2},
    {QUERY_SPECIAL_CONTEXTS, "reserved keys, for a new context"},
    {ALLOC_Q_COUNTER, "counters of the process's QPs", 1},
    {DEALLOC_Q_COUNTER, "the end of these counters", 1},
    {QUERY_Q_COUNTER, "counters that a program reads"},
    {QUERY_QP, "the library asks for the QP's state"},
    {QUERY_ISSI, "the driver asks for the interface step"},
    {ALLOC_PD, "one more PD", 2},
    {DEALLOC_PD, "one more PD", 2},
    {ALLOC_XRCD, "for the kernel's own XRC SRQ", 2},
    {QUERY_VPORT_COUNTER, "counters of the port that a program reads"},
    {MODIFY_NIC_VPORT_CONTEXT, "the netdev changes its addresses meanwhile"},
    {RTS2RTS_QP, "counters or the UDP port of a connected QP", 2},
};

// The trace step with a command's name (modules.cc).
constexpr std::string_view kExecuted = "7. process the MailBox Command";

/// Commands in a trace in Perfetto's format (util/trace.h): each device is a process, named before
/// its first step. Empty if the text is no such trace, or is truncated.
std::vector<std::string> commands_in_json(std::string_view trace, std::string_view function) {
  using nlohmann::json;
  const auto at = [](const json& from, const char* key) {
    return from.is_object() && from.contains(key) ? from[key] : json();
  };
  std::vector<std::string> commands;
  json process;
  for (const auto& event : at(json::parse(trace, nullptr, false), "traceEvents")) {
    const auto args = at(event, "args");
    const auto is = [&](const char* key, std::string_view value) {
      return at(event, key) == value;
    };
    if (is("name", "process_name") && at(args, "name") == function) process = at(event, "pid");
    if (is("cat", kFirmware) && is("name", kExecuted) && at(event, "pid") == process) {
      const auto text = at(args, "text");
      if (text.is_string()) commands.push_back(text);
    }
  }
  return commands;
}

const Cause* cause_of(std::string_view name) {
  const auto found =
      std::ranges::find(kCauses, name, [](const Cause& cause) { return to_string(cause.opcode); });
  return found == std::end(kCauses) ? nullptr : found;
}

/// The longest common subsequence: pairs of positions with the same command, in both orders.
std::vector<std::pair<std::size_t, std::size_t>> match(std::span<const std::string> recorded) {
  const auto rows = std::size(kPrinted), columns = recorded.size();
  std::vector<std::vector<unsigned>> longest(rows + 1, std::vector<unsigned>(columns + 1));
  const auto same = [&](std::size_t i, std::size_t j) {
    return to_string(kPrinted[i].opcode) == recorded[j];
  };
  for (auto i = rows; i-- != 0;) {
    for (auto j = columns; j-- != 0;) {
      longest[i][j] =
          same(i, j) ? longest[i + 1][j + 1] + 1 : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0, j = 0; i != rows && j != columns;) {
    if (same(i, j)) {
      pairs.emplace_back(i++, j++);
    } else if (longest[i + 1][j] >= longest[i][j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return pairs;
}

class Report {
 public:
  explicit Report(std::span<const std::string> recorded) : recorded_(recorded) {
    line("table 4-15", "recorded", "");
  }
  void both(std::size_t printed, std::size_t recorded) {
    line(kPrinted[printed].printed, recorded_[recorded], "");
  }
  /// Reports a command of the table that was not matched.
  void missing(std::size_t printed) {
    const auto& row = kPrinted[printed];
    const auto name = to_string(row.opcode);
    if (std::ranges::find(recorded_, name) != recorded_.end()) {
      const auto* cause = cause_of(name);
      const bool moves = cause != nullptr && cause->moves;
      return line(row.printed, "", fmt::format("in another order: {}", explain(cause, moves)));
    }
    if (row.gone.empty()) done_.complete = false;
    line(row.printed, "",
         row.gone.empty() ? std::string("NOT RECORDED") : fmt::format("gone: {}", row.gone));
  }
  void extra(std::size_t recorded) {
    const auto& name = recorded_[recorded];
    const auto* cause = cause_of(name);
    const auto nth = ++extras_[name];
    line("", name, explain(cause, cause != nullptr && nth <= cause->more));
  }
  SequenceReport finish() && { return std::move(done_); }

 private:
  std::string explain(const Cause* cause, bool holds) {
    if (!holds) done_.explained = false;
    return holds ? std::string(cause->words) : "NO CAUSE IS KNOWN";
  }
  void line(std::string_view printed, std::string_view recorded, std::string_view words) {
    auto text = fmt::format("{:<26} {:<26} {}", printed, recorded, words);
    while (text.ends_with(' ')) text.pop_back();
    done_.text += text + '\n';
  }

  std::span<const std::string> recorded_;
  std::map<std::string_view, std::size_t> extras_;
  SequenceReport done_{.text = {}, .complete = true, .explained = true};
};

}  // namespace

std::span<const PrintedCommand> printed_commands() { return kPrinted; }

std::vector<std::string> traced_commands(std::string_view trace, std::string_view function) {
  if (trace.starts_with('{')) return commands_in_json(trace, function);
  std::vector<std::string> commands;
  const auto mark = fmt::format(" {} {}: {} \"", function, kFirmware, kExecuted);
  for (auto at = trace.find(mark); at != trace.npos; at = trace.find(mark, at)) {
    at += mark.size();
    commands.emplace_back(trace.substr(at, trace.find('"', at) - at));
  }
  return commands;
}

std::vector<std::string> commands_of_a_program(std::string_view trace, std::string_view function) {
  const auto all = traced_commands(trace, function);
  const auto is = [](command_opcode opcode) {
    return [name = to_string(opcode)](const std::string& command) { return command == name; };
  };
  // The kernel has QPs too, but releases its transport domain only when it unloads.
  const auto last = std::find_if(all.rbegin(), all.rend(), is(DEALLOC_TRANSPORT_DOMAIN));
  const auto domain = std::find_if(last, all.rend(), is(ALLOC_TRANSPORT_DOMAIN));
  if (domain == all.rend() || std::none_of(last, domain, is(RTR2RTS_QP))) return {};
  auto begin = domain.base() - 1;
  while (begin != all.begin() && is(ALLOC_UAR)(*(begin - 1))) --begin;
  const auto end = std::find_if_not(last.base(), all.end(), is(DEALLOC_UAR));
  return {begin, end};
}

SequenceReport compare_sequence(std::span<const std::string> recorded) {
  Report report(recorded);
  std::size_t printed = 0, at = 0;
  auto pairs = match(recorded);
  pairs.emplace_back(std::size(kPrinted), recorded.size());
  for (const auto& [i, j] : pairs) {
    while (printed != i) report.missing(printed++);
    while (at != j) report.extra(at++);
    if (i != std::size(kPrinted)) report.both(printed++, at++);
  }
  return std::move(report).finish();
}

}  // namespace softhca::rsnic
