// memcpy of few bytes without a call, for what is mostly 8 bytes or a little more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::util {

/// Reads all before it writes, so both may overlap.
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

}  // namespace softhca::util
