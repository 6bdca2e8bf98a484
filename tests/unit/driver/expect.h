// Helpers of all tests with drivers: values of Results, bytes by seed, and expected completions.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "driver/work.h"
#include "util/result.h"

namespace softhca::driver::test {

/// The value of a Result that must hold one.
template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline void must(util::Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

/// Bytes that differ by seed and by offset.
inline void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  std::uint32_t x = seed * 2654435761u + 1;
  for (auto& byte : bytes) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(x >> 24);
  }
}
inline std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed) {
  std::vector<std::byte> bytes(size);
  fill(bytes, seed);
  return bytes;
}

/// Asserts that there is one completion with these values.
inline void expect_success(const std::vector<Completion>& completions, std::uint64_t id,
                           CompletionOpcode opcode) {
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(to_string(completions[0].status), to_string(WorkStatus::kSuccess));
  EXPECT_EQ(to_string(completions[0].opcode), to_string(opcode));
  EXPECT_EQ(completions[0].id, id);
}
inline void expect_error(const std::vector<Completion>& completions, std::uint64_t id,
                         WorkStatus status) {
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(to_string(completions[0].status), to_string(status));
  EXPECT_EQ(completions[0].id, id);
}

}  // namespace softhca::driver::test
