#include "hca/fault_kinds.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace softhca::hca {
namespace {

using enum FaultAction;

constexpr std::array<FaultKind, 9> kKinds{{
    {kStallSend, "stall-send", "", kTakesQp | kTakesRequest, false,
     "a send request of a QP or SQ is next to be executed",
     "the request is not executed while the rule exists, and those behind it wait. A QP that goes "
     "to "
     "ERR flushes them",
     "no completion: a timeout of the program; the netdev's TX timeout, and its recovery"},
    {kStallReceive, "stall-receive", "", kTakesQp, false,
     "a packet needs a receive request of the QP, its own or one of its SRQ",
     "the packet meets an empty receive queue: RC answers with an RNR NAK, UC and UD drop it",
     "the peer: RNR_RETRY_EXC_ERR, or endless retries if rnr_retry is 7"},
    {kStallCq, "stall-cq", "", kTakesCq, false, "a CQE is about to be written",
     "the CQE and those behind it are written when the rule is removed. If more wait than the CQ "
     "has entries, or 65,536 of the process's HCAs of one kind, the CQ overruns",
     "no completion and no event: a timeout; after an overrun, CQ_ERR and the QPs in ERR"},
    {kLoseInterrupt, "lose-interrupt", "", kTakesCq, false,
     "an EQ is about to raise its interrupt; with cq=, for an event of this CQ",
     "the EQE is written, and no interrupt is raised. The EQ raises none before it is armed again",
     "Linux polls the EQ after the timeout of a command or of the netdev, and reports a lost "
     "IRQ"},
    {kFailRequest, "fail-request", ",status=STATUS", kTakesQp | kTakesRequest | kNeedsStatus, false,
     "a send request of a QP or SQ is next to be executed",
     "the request is not executed. It ends with this status, after those before it have completed",
     "an error completion; the QP or SQ goes to its error state, and the requests behind are "
     "flushed"},
    {kHangCommand, "hang-command", "", kTakesCommand, false, "a command is about to be executed",
     "the command is not executed while the rule exists. Other commands go on",
     "the driver's timeout: 60 s in Linux, which reports a leaked command resource"},
    {kFailCommand, "fail-command", ",status=STATUS[,syndrome=NUMBER]",
     kTakesCommand | kNeedsStatus | kTakesSyndrome, false, "a command is about to be executed",
     "the command is not executed, and ends with this status and syndrome",
     "the error path behind this command: an errno of the verb, a failed probe"},
    {kInternalError, "internal-error", "[,syndrome=SYNDROME]", kTakesCommand | kTakesSyndrome, true,
     "a command is about to be executed; without opcode, nth and every: the rule is added",
     "the health buffer shows the syndrome (FW_INTERNAL_ERR if none is given) and asks for "
     "recovery, the health counter stops, no command ends, and all objects stop. It ends when a "
     "driver asks for a software reset, or starts again",
     "Linux reports the fatal error within 2 to 3 s, fails its commands, and recovers; "
     "programs "
     "get IBV_EVENT_DEVICE_FATAL"},
    {kRemove, "remove", "", kTakesCommand, true,
     "a command is about to be executed; without opcode, nth and every: the rule is added",
     "the function vanishes, as after a surprise removal: reads are all ones, writes have no "
     "effect, "
     "no DMA and no interrupt. It is back, reset, when the rule is removed",
     "Linux finds all ones and reports a fatal error; a rescan finds the function again"},
}};

static_assert([] {
  for (std::size_t i = 0; i != kKinds.size(); ++i) {
    if (static_cast<std::size_t>(kKinds[i].action) != i) return false;
  }
  return true;
}());

std::string keys_text(const FaultKind& kind) {
  std::string text = "`function`";
  if (kind.takes(kTakesQp)) text += ", `qp`";
  if (kind.takes(kTakesCq)) text += ", `cq`";
  if (kind.takes(kTakesRequest)) text += ", `opcode` of a request";
  if (kind.takes(kTakesCommand)) text += ", `opcode` of a command";
  return text;
}

}  // namespace

std::span<const FaultKind> fault_kinds() { return kKinds; }

const FaultKind& fault_kind(FaultAction action) { return kKinds[static_cast<std::size_t>(action)]; }

std::string fault_help() {
  std::string text =
      "[function=NAME,][qp=N,][cq=N,][opcode=NAME,][nth=N|every=N,]do=ACTION, where ACTION is ";
  for (const auto& kind : kKinds) {
    if (&kind != kKinds.data()) text += "; ";
    text += fmt::format("{}{}", kind.name, kind.arguments);
  }
  return text;
}

std::string fault_table() {
  std::string text =
      "| `do=` | other keys | event | what the device does | what a driver or program sees |\n"
      "|---|---|---|---|---|\n";
  for (const auto& kind : kKinds) {
    text += fmt::format("| `{}{}` | {} | {} | {} | {} |\n", kind.name, kind.arguments,
                        keys_text(kind), kind.event, kind.effect, kind.seen);
  }
  return text;
}

}  // namespace softhca::hca
