// memcpy of a few bytes without a function call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::util {

/// Fastest for 8 to 16 bytes. Reads all bytes before it writes any, so the ranges may overlap.
inline void copy_short(void* to, const void* from, std::size_t size) {
  if (size - sizeof(std::uint64_t) > sizeof(std::uint64_t)) {
    if (size != 0) std::memmove(to, from, size);  // with size 0 the pointers may be null
    return;
  }
  // From 8 to 16 bytes: the first 8 and the last 8.
  const auto last = size - sizeof(std::uint64_t);
  std::uint64_t begin;
  std::uint64_t end;
  std::memcpy(&begin, from, sizeof begin);
  std::memcpy(&end, static_cast<const std::byte*>(from) + last, sizeof end);
  std::memcpy(to, &begin, sizeof begin);
  std::memcpy(static_cast<std::byte*>(to) + last, &end, sizeof end);
}

namespace detail {

/// Copies Half to 2 * Half bytes: the first Half and the last Half.
template <std::size_t Half>
void copy_ends(void* to, const void* from, std::size_t size) {
  const auto last = size - Half;
  std::byte begin[Half];
  std::byte end[Half];
  std::memcpy(begin, from, Half);
  std::memcpy(end, static_cast<const std::byte*>(from) + last, Half);
  std::memcpy(to, begin, Half);
  std::memcpy(static_cast<std::byte*>(to) + last, end, Half);
}

}  // namespace detail

/// The same, fastest for 16 to 64 bytes: packet headers, or parts of them.
inline void copy_header(void* to, const void* from, std::size_t size) {
  if (size - 32 <= 32) return detail::copy_ends<32>(to, from, size);
  if (size - 16 <= 16) return detail::copy_ends<16>(to, from, size);
  if (size != 0) std::memmove(to, from, size);
}

}  // namespace softhca::util
