// A rule that injects a fault into an HCA, as users write it.
//
//   function=hca0,qp=0x41,opcode=RDMA_WRITE,nth=5,do=fail-request,status=REM_ACCESS_ERR
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hca/fault_kinds.h"
#include "rdma/types.h"
#include "util/result.h"
#include "util/rule_words.h"

namespace softhca::hca {

/// A name of the device's document, and its number.
struct FaultName {
  std::string_view name;
  std::uint32_t value;
};

/// The names that the rules of one kind of HCA may use.
struct FaultNames {
  std::vector<FaultName> requests;   ///< opcodes of send requests
  std::vector<FaultName> commands;   ///< opcodes of commands
  std::vector<FaultName> statuses;   ///< how a command ends
  std::vector<FaultName> syndromes;  ///< of an internal error
};

/// Without nth and every, it acts on each event that it matches.
struct FaultRule : util::RuleTurns {
  FaultAction action = FaultAction::kStallSend;
  std::string function;                               ///< its name; empty: any
  std::optional<std::uint32_t> qp;                    ///< QPN or SQN; nothing: any
  std::optional<std::uint32_t> cq;                    ///< nothing: any
  std::string opcode;                                 ///< empty: any
  std::uint32_t status = 0;                           ///< kFailCommand
  std::optional<std::uint32_t> syndrome;              ///< kFailCommand, kInternalError
  rdma::WorkStatus end = rdma::WorkStatus::kSuccess;  ///< kFailRequest

  const FaultKind& kind() const { return fault_kind(action); }
  /// True if it acts once, when it is added.
  bool immediate() const { return kind().immediate && opcode.empty() && nth == 0 && every == 0; }
};

/// The names of the statuses with which a request can end: libibverbs's, without IBV_WC_.
std::span<const FaultName> work_status_names();

util::Result<FaultRule> parse_fault(std::string_view text, const FaultNames& names);
/// Formats the rule as text that parse_fault() accepts.
std::string to_text(const FaultRule& rule, const FaultNames& names);

}  // namespace softhca::hca
