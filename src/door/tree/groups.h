// GUIDs and GIDs as sysfs writes them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

#include "util/endian.h"

namespace softhca::door {

/// 16-bit groups in hexadecimal: "0002:c903:0012:3450". @pre a whole number of groups
inline std::string in_groups(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t at = 0; at != bytes.size(); at += 2) {
    text += fmt::format("{}{:04x}", at == 0 ? "" : ":", util::load_be16(bytes.data() + at));
  }
  return text;
}

}  // namespace softhca::door
