// What the fuzzers of ConnectX share: an input that is taken apart from its start, and failures
// that end the program.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "util/log.h"

namespace softhca::fuzz {

inline void check(bool holds) {
  if (!holds) std::abort();
}

/// What is missing at its end is zero. Numbers are little-endian.
class Script {
 public:
  explicit Script(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return static_cast<std::uint8_t>(value);
  }
  std::uint16_t word() {
    const auto low = byte();
    return static_cast<std::uint16_t>(low | byte() << 8);
  }
  std::uint32_t dword() {
    const auto low = word();
    return low | std::uint32_t{word()} << 16;
  }
  std::uint32_t below(std::uint32_t n) { return word() % n; }
  std::span<const std::byte> take(std::size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

/// The input of a fuzzer whose expectations abort, and whose device logs nothing.
inline Script script_of(const std::uint8_t* data, std::size_t size) {
  static const bool prepared = [] {
    GTEST_FLAG_SET(break_on_failure, true);
    util::set_log_sink([](util::LogLevel, std::string_view) {});
    return true;
  }();
  (void)prepared;
  return Script(std::as_bytes(std::span(data, size)));
}

}  // namespace softhca::fuzz
