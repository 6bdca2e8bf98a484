// Table 4-15: the host commands of one ib_read_bw run, as the document prints them and as a trace
// of the card records them.
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
  std::string_view description;  ///< from the table
  /// Why today's libraries no longer issue it; empty if they do.
  std::string_view gone;
};
/// In the order of the table.
std::span<const PrintedCommand> printed_commands();

/// The commands of the last RDMA program in a trace of `function`, in either trace format: from its
/// doorbell pages and transport domain to their release. Names are those of
/// spec::connectx::command_opcode. Empty if there is no such program.
std::vector<std::string> commands_of_a_program(std::string_view trace, std::string_view function);

/// All commands of `function` in a trace, in order.
std::vector<std::string> traced_commands(std::string_view trace, std::string_view function);

struct SequenceReport {
  std::string text;        ///< both sequences side by side, each difference with its cause
  bool complete = false;   ///< every command of the table was recorded, except those marked `gone`
  bool explained = false;  ///< every difference has a cause
};
SequenceReport compare_sequence(std::span<const std::string> recorded);

}  // namespace softhca::rsnic
