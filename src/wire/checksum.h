// The internet checksum (RFC 1071): the ones-complement sum of 16-bit words, folded.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "util/endian.h"
#include "wire/payload_checksum.h"

namespace softhca::wire {

/// Sums bytes that are added in pieces of any length. The sum is kept in memory order (RFC 1071
/// 2(B): the sum does not depend on the byte order), and swapped once at the end.
class ChecksumSum {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::uint64_t part = sum(bytes);
    // A piece at an odd offset has its bytes in the opposite halves of the words.
    add_folded(odd_ ? std::uint64_t{__builtin_bswap16(fold(part))} : part);
    odd_ ^= (bytes.size() & 1) != 0;
  }
  /// Adds the numbers of a pseudo header. @pre an even number of bytes was added so far
  void add_u16(std::uint16_t value) { add_folded(to_big(value)); }
  void add_u32(std::uint32_t value) {
    add_u16(static_cast<std::uint16_t>(value >> 16));
    add_u16(static_cast<std::uint16_t>(value));
  }

  /// value() of bytes in one piece.
  static std::uint16_t of(std::span<const std::byte> bytes) { return to_big(fold(sum(bytes))); }
  /// The same, and copies the bytes in the same pass. @pre source and destination do not overlap
  static std::uint16_t copy(std::byte* to, std::span<const std::byte> from) {
    return to_big(fold(copy_and_sum(to, from)));
  }
  /// The checksum field for such a sum.
  static std::uint16_t invert(std::uint64_t sum) { return static_cast<std::uint16_t>(~fold(sum)); }
  /// The ones-complement sum, not inverted.
  std::uint16_t value() const { return to_big(fold(sum_)); }
  /// The inverted sum, as a checksum field holds it.
  std::uint16_t checksum() const { return static_cast<std::uint16_t>(~value()); }

 private:
  static constexpr std::uint16_t to_big(std::uint16_t value) {
    return std::endian::native == std::endian::little ? __builtin_bswap16(value) : value;
  }
  static constexpr std::uint16_t fold(std::uint64_t sum) {
    // Each half is added to the other: the upper one receives the carry of the lower.
    sum += std::rotl(sum, 32);
    auto half = static_cast<std::uint32_t>(sum >> 32);
    half += std::rotl(half, 16);
    return static_cast<std::uint16_t>(half >> 16);
  }
  /// 64-bit addition with end-around carry.
  void add_folded(std::uint64_t part) {
    sum_ += part;
    sum_ += sum_ < part;
  }
  static std::uint64_t sum(std::span<const std::byte> bytes) {
    return bytes.size() < kMany ? sum_few(bytes) : sum_many(bytes);
  }
  /// Bytes from which a wider loop is worth its call.
  static constexpr std::size_t kMany = 256;
  static std::uint64_t sum_many(std::span<const std::byte> bytes);
  static std::uint64_t copy_and_sum(std::byte* to, std::span<const std::byte> from);
  [[gnu::noinline]] static std::uint64_t sum_in_parts(std::span<const std::byte> bytes);
  static std::uint64_t sum_few(std::span<const std::byte> bytes) {
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    // 32-bit words in 64-bit lanes cannot overflow below 2^32 words. Four lanes vectorize.
    std::uint64_t lanes[4] = {};
    for (; left >= 16; left -= 16, at += 16) {
      std::uint32_t words[4];
      std::memcpy(words, at, sizeof words);
      for (int i = 0; i < 4; ++i) lanes[i] += words[i];
    }
    std::uint64_t total = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    for (; left >= 2; left -= 2, at += 2) {
      std::uint16_t word;
      std::memcpy(&word, at, sizeof word);
      total += word;
    }
    if (left != 0) {
      // RFC 1071 4.1: the last odd byte is followed by a zero byte.
      std::uint16_t word = 0;
      std::memcpy(&word, at, 1);
      total += word;
    }
    return total;
  }

  std::uint64_t sum_ = 0;
  bool odd_ = false;
};

/// Stores a deferred checksum in a copy of its head. `payload_sum`: ChecksumSum::of() the payload.
inline void put_checksum(const PayloadChecksum& deferred, std::byte* head,
                         std::uint16_t payload_sum) {
  const auto checksum = ChecksumSum::invert(deferred.sum + payload_sum);
  util::store_be16(head + deferred.at, checksum == 0 ? deferred.zero : checksum);
}

/// The checksum of `bytes`; 0 if they include their own correct checksum.
inline std::uint16_t checksum_of(std::span<const std::byte> bytes) {
  ChecksumSum sum;
  sum.add(bytes);
  return sum.checksum();
}

}  // namespace softhca::wire
