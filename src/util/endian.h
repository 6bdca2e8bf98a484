// Loads and stores of integers with a stated byte order, at any alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::util {

enum class ByteOrder { kBig, kLittle };

namespace detail {

constexpr std::uint8_t swap_bytes(std::uint8_t v) { return v; }
constexpr std::uint16_t swap_bytes(std::uint16_t v) { return __builtin_bswap16(v); }
constexpr std::uint32_t swap_bytes(std::uint32_t v) { return __builtin_bswap32(v); }
constexpr std::uint64_t swap_bytes(std::uint64_t v) { return __builtin_bswap64(v); }

template <ByteOrder Order>
constexpr bool kSwaps = (Order == ByteOrder::kBig) == (std::endian::native == std::endian::little);

}  // namespace detail

template <ByteOrder Order, class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return detail::kSwaps<Order> ? detail::swap_bytes(value) : value;
}

template <ByteOrder Order, class T>
void store(std::byte* at, T value) {
  if constexpr (detail::kSwaps<Order>) value = detail::swap_bytes(value);
  std::memcpy(at, &value, sizeof(T));
}

inline std::uint16_t load_be16(const std::byte* p) {
  return load<ByteOrder::kBig, std::uint16_t>(p);
}
inline std::uint32_t load_be32(const std::byte* p) {
  return load<ByteOrder::kBig, std::uint32_t>(p);
}
inline std::uint64_t load_be64(const std::byte* p) {
  return load<ByteOrder::kBig, std::uint64_t>(p);
}
inline std::uint16_t load_le16(const std::byte* p) {
  return load<ByteOrder::kLittle, std::uint16_t>(p);
}
inline std::uint32_t load_le32(const std::byte* p) {
  return load<ByteOrder::kLittle, std::uint32_t>(p);
}
inline std::uint64_t load_le64(const std::byte* p) {
  return load<ByteOrder::kLittle, std::uint64_t>(p);
}

inline void store_be16(std::byte* p, std::uint16_t v) { store<ByteOrder::kBig>(p, v); }
inline void store_be32(std::byte* p, std::uint32_t v) { store<ByteOrder::kBig>(p, v); }
inline void store_be64(std::byte* p, std::uint64_t v) { store<ByteOrder::kBig>(p, v); }
inline void store_le16(std::byte* p, std::uint16_t v) { store<ByteOrder::kLittle>(p, v); }
inline void store_le32(std::byte* p, std::uint32_t v) { store<ByteOrder::kLittle>(p, v); }
inline void store_le64(std::byte* p, std::uint64_t v) { store<ByteOrder::kLittle>(p, v); }

}  // namespace softhca::util
