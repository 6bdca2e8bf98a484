// The faults that a user can inject into an HCA. The parser of rules, the help texts and
// docs/faults-hca.md come from this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace softhca::hca {

enum class FaultAction : std::uint8_t {
  kStallSend,
  kStallReceive,
  kStallCq,
  kLoseInterrupt,
  kFailRequest,
  kHangCommand,
  kFailCommand,
  kInternalError,
  kRemove,
};

/// Keys that only some kinds take.
enum FaultKeys : std::uint8_t {
  kTakesQp = 1,
  kTakesCq = 2,
  kTakesRequest = 4,   ///< opcode= names a send request
  kTakesCommand = 8,   ///< opcode= names a command
  kNeedsStatus = 16,   ///< status=
  kTakesSyndrome = 32  ///< syndrome=
};

struct FaultKind {
  FaultAction action;
  std::string_view name;       ///< in do=
  std::string_view arguments;  ///< behind the name, for help texts
  std::uint8_t keys;           ///< FaultKeys
  /// True if a rule without opcode, nth and every acts once, when it is added.
  bool immediate;
  std::string_view event;   ///< what nth and every count
  std::string_view effect;  ///< what the device does
  std::string_view seen;    ///< what a driver or program sees

  bool takes(std::uint8_t key) const { return (keys & key) != 0; }
};

/// In the order of FaultAction.
std::span<const FaultKind> fault_kinds();
const FaultKind& fault_kind(FaultAction action);

/// The syntax of a rule, for help texts.
std::string fault_help();
/// The table of docs/faults-hca.md.
std::string fault_table();

}  // namespace softhca::hca
