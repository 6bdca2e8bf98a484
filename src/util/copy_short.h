// memcpy of few bytes without a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::util {

/// For what is mostly 8 bytes or a little more. Reads all before it writes, so both may overlap.
inline void copy_short(void* to, const void* from, std::size_t size) {
  if (size - sizeof(std::uint64_t) > sizeof(std::uint64_t)) {
    if (size != 0) std::memmove(to, from, size);  // no bytes may have no address
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

/// From Half to 2 * Half bytes: the first Half and the last Half.
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

/// The same for what is mostly the headers of a packet, or a part of them: from 16 to 64 bytes.
inline void copy_header(void* to, const void* from, std::size_t size) {
  if (size - 32 <= 32) return detail::copy_ends<32>(to, from, size);
  if (size - 16 <= 16) return detail::copy_ends<16>(to, from, size);
  if (size != 0) std::memmove(to, from, size);
}

}  // namespace softhca::util
