#include "wire/checksum.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace softhca::wire {

namespace {

#if defined(__x86_64__)

/// Words of 16 bits, less 2^15 so that they have a sign, are added in pairs: one instruction does
/// that for 32 bytes. A lane of 32 bits has room for so many blocks of four.
constexpr std::size_t kUnroll = 4;
constexpr std::size_t kBlock = 32 * kUnroll;
constexpr std::size_t kBlocksMax = std::size_t{1} << 12;
constexpr std::uint64_t kBias = std::uint64_t{0x8000} * (kBlock / 2);

[[gnu::target("avx2")]] std::uint64_t sum_blocks(const std::byte* at, std::size_t blocks) {
  const auto sign = _mm256_set1_epi16(INT16_MIN);
  const auto ones = _mm256_set1_epi16(1);
  auto lanes = _mm256_setzero_si256();
  for (std::size_t left = blocks; left != 0; --left, at += kBlock) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i != kUnroll; ++i) {
      const auto words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + i);
      const auto pairs = _mm256_madd_epi16(_mm256_xor_si256(words, sign), ones);
      lanes = _mm256_add_epi32(lanes, pairs);
    }
  }
  std::int32_t parts[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), lanes);
  std::int64_t sum = 0;
  for (const auto part : parts) sum += part;
  return static_cast<std::uint64_t>(sum) + blocks * kBias;
}

#endif

}  // namespace

std::uint64_t ChecksumSum::sum_many(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2");
  std::uint64_t total = 0;
  while (wide && bytes.size() >= kBlock) {
    const auto blocks = std::min(bytes.size() / kBlock, kBlocksMax);
    total += sum_blocks(bytes.data(), blocks);
    bytes = bytes.subspan(blocks * kBlock);
  }
  return total + sum_few(bytes);
#else
  return sum_few(bytes);
#endif
}

}  // namespace softhca::wire
