// What the syndromes in a driver's log mean: every refusal of the device, collected from its
// sources by tools/refusal_table.py, and the commands that it does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "connectx/command/command.h"

namespace softhca::connectx {

/// A line of the collected table.
struct RefusalInfo {
  std::uint32_t syndrome;
  Status status;
  std::string_view section;
  std::string_view text;
  std::string_view commands;  ///< which of them it can be an answer to; empty: any
  std::string_view sources;   ///< files of src/ where the check stands
};

/// By ascending syndrome.
std::span<const RefusalInfo> refusals();

struct SyndromeMeaning {
  Status status;
  std::string_view section;
  std::string_view text;
  std::string commands;      ///< names with blanks between; empty: any
  std::string_view sources;  ///< empty: no check of this version
  std::string_view since{};  ///< not empty: earlier versions refused it, and what is different now
};

/// Nothing if no version answers with this number.
std::optional<SyndromeMeaning> explain_syndrome(std::uint32_t syndrome);

}  // namespace softhca::connectx
