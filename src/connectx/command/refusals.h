// The meaning of the syndromes in a driver's log: every refusal of the device, which
// tools/refusal_table.py collects from the sources, and every command that the device lacks.
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
  std::string_view commands;  ///< commands that can be refused in this way; empty: any
  std::string_view sources;   ///< files of src/ with the check
};

/// By ascending syndrome.
std::span<const RefusalInfo> refusals();

struct SyndromeMeaning {
  Status status;
  std::string_view section;
  std::string_view text;
  std::string commands;      ///< names separated by blanks; empty: any
  std::string_view sources;  ///< empty: this version has no such check
  std::string_view since{};  ///< the change, if only earlier versions refused it
};

/// Unset if no version uses this syndrome.
std::optional<SyndromeMeaning> explain_syndrome(std::uint32_t syndrome);

}  // namespace softhca::connectx
