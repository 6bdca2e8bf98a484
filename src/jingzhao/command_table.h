// The table of all commands, and the checks that precede each handler.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "jingzhao/command.h"

namespace softhca::jingzhao {

/// Mailbox size: in_modifier gives the number of entries.
inline constexpr std::uint32_t kListed = UINT32_MAX;
/// Mailbox size: a MAD in both directions, or no input and the port status as output
/// (docs/jingzhao.md, gap 8).
inline constexpr std::uint32_t kMadOrStatus = UINT32_MAX - 1;
/// Mailbox size of ERR2RST_QPEE: a context, unless op_modifier says that there is none.
inline constexpr std::uint32_t kContextOrNone = UINT32_MAX - 2;
/// Size of a mailbox (JingZhao 1.1).
inline constexpr std::uint32_t kMailbox = 4096;

struct CommandInfo {
  Opcode op;
  std::string_view name;
  std::uint32_t in;   ///< bytes of the input mailbox, or kListed, kMadOrStatus, kContextOrNone
  std::uint32_t out;  ///< bytes of the output mailbox, or kMadOrStatus
  std::uint32_t op_modifiers;  ///< bit n: op_modifier may be n
  CommandHandler handler;
  bool needs_init;  ///< only between INIT_HCA and CLOSE_HCA
  std::string_view section;
  std::string_view lacks;
};

/// In the order of the document.
std::span<const CommandInfo> command_table();
/// Null if there is no such command.
const CommandInfo* find_command(Opcode op);

/// Bytes of the command's input mailbox. Refuses an in_modifier of no entries, or of more than a
/// mailbox holds.
CommandResult input_size(const CommandInfo& info, const Command& command, std::uint32_t& size);

/// Bytes of the command's output mailbox.
std::uint32_t output_size(const CommandInfo& info, const Command& command);

// Handlers, in *_commands.cc.
CommandResult query_dev_lim(Device& device, const Command& command);
CommandResult query_adapter(Device& device, const Command& command);
CommandResult init_hca(Device& device, const Command& command);
CommandResult close_hca(Device& device, const Command& command);
CommandResult nop(Device& device, const Command& command);
CommandResult mad_ifc(Device& device, const Command& command);
CommandResult map_icm(Device& device, const Command& command);
CommandResult unmap_icm(Device& device, const Command& command);
CommandResult sw2hw_mpt(Device& device, const Command& command);
CommandResult hw2sw_mpt(Device& device, const Command& command);
CommandResult write_mtt(Device& device, const Command& command);
CommandResult map_eq(Device& device, const Command& command);
CommandResult sw2hw_eq(Device& device, const Command& command);
CommandResult hw2sw_eq(Device& device, const Command& command);
CommandResult sw2hw_cq(Device& device, const Command& command);
CommandResult hw2sw_cq(Device& device, const Command& command);
CommandResult resize_cq(Device& device, const Command& command);
CommandResult modify_qp(Device& device, const Command& command);
CommandResult query_qp(Device& device, const Command& command);
CommandResult conf_special_qp(Device& device, const Command& command);

}  // namespace softhca::jingzhao
