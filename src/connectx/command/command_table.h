// Which commands there are (PRM Table 127), what they need, and who carries them out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/command/command.h"

namespace softhca::connectx {

/// How far the driver has come in the start-up order (PRM 8.2).
enum class HcaState : std::uint8_t {
  kDisabled,  ///< before ENABLE_HCA
  kEnabled,   ///< before INIT_HCA, and again after TEARDOWN_HCA
  kInitialized,
};

struct CommandSpec {
  spec::connectx::command_opcode opcode;
  std::string_view section;
  std::uint32_t min_input;   ///< bytes
  std::uint32_t min_output;  ///< bytes
  CommandHandler handler;
  std::uint8_t states;  ///< bit of each HcaState in which it is allowed

  constexpr std::string_view name() const { return to_string(opcode); }
  constexpr bool allowed_in(HcaState state) const {
    return (states >> static_cast<unsigned>(state) & 1) != 0;
  }
};

/// By ascending opcode.
std::span<const CommandSpec> command_table();
/// Null for an opcode that the device does not have.
const CommandSpec* find_command(std::uint16_t opcode);

}  // namespace softhca::connectx
