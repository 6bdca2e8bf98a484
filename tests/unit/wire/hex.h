// Bytes written as hex in tests.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace softhca::wire {

/// Spaces between digits are skipped.
inline std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::vector<std::byte> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ') continue;
    if (high < 0) {
      high = digit(c);
    } else {
      bytes.push_back(std::byte(high << 4 | digit(c)));
      high = -1;
    }
  }
  return bytes;
}

}  // namespace softhca::wire
