// Which commands there are (PRM Table 127 and the mlx5 driver's), what they need, who carries them
// out, and which of them the device does not have, and why.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/command/command.h"
#include "util/bits.h"

namespace softhca::connectx {

/// How far the driver has come in the start-up order (PRM 8.2).
enum class HcaState : std::uint8_t {
  kDisabled,  ///< before ENABLE_HCA
  kEnabled,   ///< before INIT_HCA, and again after TEARDOWN_HCA
  kInitialized,
};

/// How much of a command's section the device does.
enum class Coverage : std::uint8_t {
  kDone,
  kPartly,
  kAbsent,   ///< BAD_OP: not built yet
  kRefused,  ///< BAD_OP: not this device's
};

std::string_view to_string(Coverage coverage);

struct CommandSpec {
  spec::connectx::command_opcode opcode;
  std::string_view section;
  Coverage coverage;
  /// What a command that is partly done does not do, or why the device does not have it.
  std::string_view words;
  std::uint32_t input;      ///< bytes of its fixed part
  std::uint32_t min_input;  ///< bytes: of a shorter form, whose rest counts as zeros
  std::uint32_t entry;  ///< bytes of an entry of its list whose rest may be missing likewise; or 1
  std::uint32_t min_output;  ///< bytes
  CommandHandler handler;    ///< null for a command that the device does not have
  bool reads_op_mod;    ///< the handler refuses values that it does not know; or only 0 is known
  std::uint8_t states;  ///< bit of each HcaState in which it is allowed

  constexpr std::string_view name() const { return to_string(opcode); }
  constexpr bool allowed_in(HcaState state) const {
    return util::has_bit(states, static_cast<unsigned>(state));
  }
  /// What a driver gets that asks for a command that the device does not have.
  constexpr Refusal refusal() const {
    return {Status::BAD_OP, syndrome_of(section, words), words, section};
  }
};

/// By ascending opcode.
std::span<const CommandSpec> command_table();
/// Null for an opcode that neither the manual nor the driver has.
const CommandSpec* find_command(std::uint16_t opcode);

}  // namespace softhca::connectx
