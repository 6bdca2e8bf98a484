// A table of the device's capabilities, for QUERY_HCA_CAP, for tests, and for the documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/base/limits.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// The meaning of a capability's number `n`.
enum class LimitKind : std::uint8_t {
  kLogObjects,  ///< 2^n objects at the same time
  kObjects,     ///< n objects at the same time
  kField,       ///< a field is at most n
  kLogField,    ///< a field is at most 2^n
  kLeast,       ///< a field is at least n
  kIndex,       ///< an index is below n
  kBytes,       ///< a stride has at most n bytes
  kTold,        ///< nothing is refused
  kBit,         ///< a bit that is 1
};

struct CapabilityInfo {
  spec::connectx::hca_cap_type group;
  std::string_view name;
  LimitKind kind;
  std::string_view commands;  ///< commands that refuse values beyond it; empty for kTold and kBit
  /// The limited field, the counted objects, or the reason why nothing is refused.
  std::string_view what;
  std::uint32_t value;  ///< value of a ConnectX-4
  std::uint32_t Limits::*
      limit;  ///< null for kTold and kBit: the value is the same in every device
  /// Write a value to the group's image, and read it back.
  void (*write)(std::span<std::byte> image, std::uint32_t value);
  std::uint32_t (*read)(std::span<const std::byte> image);
};

/// In the order of limit_list.inc.
std::span<const CapabilityInfo> capability_table();

}  // namespace softhca::connectx
