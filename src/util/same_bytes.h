// memcmp() == 0 for a few bytes, whose number is a constant, without a function call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::util {

/// @tparam Size a multiple of 16
template <std::size_t Size>
[[gnu::always_inline]] inline bool same_bytes(const void* a, const void* b) {
  // Compilers put each pair into one register.
  using Pair [[gnu::vector_size(16)]] = std::uint64_t;
  static_assert(Size % sizeof(Pair) == 0);
  Pair differs{};
  for (std::size_t at = 0; at != Size; at += sizeof(Pair)) {
    Pair of_a;
    Pair of_b;
    std::memcpy(&of_a, static_cast<const std::byte*>(a) + at, sizeof of_a);
    std::memcpy(&of_b, static_cast<const std::byte*>(b) + at, sizeof of_b);
    differs |= of_a ^ of_b;
  }
  return (differs[0] | differs[1]) == 0;
}

}  // namespace softhca::util
