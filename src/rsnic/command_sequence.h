// Table 4-15: the commands that ib_read_bw makes its host send, as the document printed them and as
// a trace of the card has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/connectx/opcodes.h"

namespace softhca::rsnic {

struct PrintedCommand {
  spec::connectx::command_opcode opcode;
  std::string_view printed;      ///< its name in the table
  std::string_view description;  ///< likewise
  /// Why the libraries of today do not issue it; empty: they do.
  std::string_view gone;
};
/// In the printed order.
std::span<const PrintedCommand> printed_commands();

/// The commands of the last RDMA program in a trace of `function`, of either form: those from its
/// doorbell pages and transport domain to their end. Names are those of
/// spec::connectx::command_opcode. Empty if there is no such program.
std::vector<std::string> commands_of_a_program(std::string_view trace, std::string_view function);

/// All commands of `function` in a trace, in order.
std::vector<std::string> traced_commands(std::string_view trace, std::string_view function);

struct SequenceReport {
  std::string text;        ///< both side by side, each difference with its cause
  bool complete = false;   ///< all of the table are there but for those that are gone
  bool explained = false;  ///< each difference has a cause
};
SequenceReport compare_sequence(std::span<const std::string> recorded);

}  // namespace softhca::rsnic
