// The commands of the manual (PRM Table 127) and of the mlx5 driver: their requirements and
// handlers, and the reasons why some are missing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/command/command.h"
#include "util/bits.h"

namespace softhca::connectx {

/// The driver's progress in the start-up order (PRM 8.2).
enum class HcaState : std::uint8_t {
  kDisabled,  ///< before ENABLE_HCA
  kEnabled,   ///< before INIT_HCA, and again after TEARDOWN_HCA
  kInitialized,
};

/// The part of a command's section that the device implements.
enum class Coverage : std::uint8_t {
  kDone,
  kPartly,
  kAbsent,   ///< BAD_OP: not implemented yet
  kRefused,  ///< BAD_OP: this device does not have it
};

std::string_view to_string(Coverage coverage);

struct CommandSpec {
  spec::connectx::command_opcode opcode;
  std::string_view section;
  Coverage coverage;
  /// The part that a kPartly command lacks, or the reason why the device lacks the command.
  std::string_view words;
  std::uint32_t input;       ///< bytes of the fixed part
  std::uint32_t min_input;   ///< bytes of the shortest valid input; missing bytes count as zeros
  std::uint32_t entry;       ///< bytes of list entries, whose missing end counts as zeros; or 1
  std::uint32_t min_output;  ///< bytes
  CommandHandler handler;    ///< null for a command that the device does not have
  bool reads_op_mod;         ///< true: the handler checks op_mod; false: only 0 is valid
  std::uint8_t states;       ///< one bit for each HcaState in which the command is allowed

  constexpr std::string_view name() const { return to_string(opcode); }
  constexpr bool allowed_in(HcaState state) const {
    return util::has_bit(states, static_cast<unsigned>(state));
  }
  /// The answer to a command that the device does not have.
  constexpr Refusal refusal() const {
    return {Status::BAD_OP, syndrome_of(section, words), words, section};
  }
};

/// By ascending opcode.
std::span<const CommandSpec> command_table();
/// Null if neither the manual nor the driver defines the opcode.
const CommandSpec* find_command(std::uint16_t opcode);

}  // namespace softhca::connectx
