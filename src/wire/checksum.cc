#include "wire/checksum.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace softhca::wire {

namespace {

#if defined(__x86_64__)

/// 16-bit words, minus 2^15 to make them signed, are added in pairs: one instruction does so for 32
/// bytes. A 32-bit lane has room for kVectorsMax vectors.
constexpr std::size_t kVector = 32;
constexpr std::size_t kVectorsMax = std::size_t{1} << 14;
constexpr std::uint64_t kBias = std::uint64_t{0x8000} * (kVector / 2);

// Set when the program starts. Code that runs earlier sees false, and uses the other loop.
const bool wide = __builtin_cpu_supports("avx2");

/// Mask table: of the kVector bytes from byte n on, the last n are all ones.
constexpr auto kLastBytes = [] {
  std::array<std::byte, 2 * kVector> bytes{};
  for (std::size_t i = kVector; i != bytes.size(); ++i) bytes[i] = std::byte{0xFF};
  return bytes;
}();

[[gnu::target("avx2"), gnu::always_inline]] inline __m256i load_vector(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
struct Constants {
  __m256i sign;
  __m256i ones;
};
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i add_vector(__m256i lanes, __m256i words,
                                                                      const Constants& c) {
  const auto less = _mm256_xor_si256(words, c.sign);
  return _mm256_add_epi32(lanes, _mm256_madd_epi16(less, c.ones));
}

/// Destinations of a summed vector: none, or a copy at a distance.
struct Nowhere {
  [[gnu::target("avx2"), gnu::always_inline]] void put(const std::byte*, __m256i) const {}
};
struct Elsewhere {
  std::ptrdiff_t away;  ///< bytes from a vector's source to its destination

  [[gnu::target("avx2"), gnu::always_inline]] void put(const std::byte* at, __m256i vector) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(const_cast<std::byte*>(at) + away), vector);
  }
};

/// Adds `Count` vectors and advances `at` behind them.
template <std::size_t Count, class Copy>
[[gnu::target("avx2"), gnu::always_inline]] inline void add_vectors(__m256i& lanes,
                                                                    const std::byte*& at,
                                                                    const Constants& c, Copy copy) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i != Count; ++i) {
    const auto vector = load_vector(at + i * kVector);
    copy.put(at + i * kVector, vector);
    lanes = add_vector(lanes, vector, c);
  }
  at += Count * kVector;
}

/// @pre an even number of bytes, at least one vector, and at most kVectorsMax vectors
template <class Copy>
[[gnu::target("avx2"), gnu::always_inline]] inline std::uint64_t sum_all(
    std::span<const std::byte> bytes, Copy copy) {
  Constants c{_mm256_set1_epi16(INT16_MIN), _mm256_set1_epi16(1)};
  // Prevents the compiler from recreating these for each use.
  asm("" : "+x"(c.sign), "+x"(c.ones));
  auto lanes = _mm256_setzero_si256();
  const auto* at = bytes.data();
  const auto vectors = bytes.size() / kVector;
  const auto rest = bytes.size() % kVector;
  for (auto left = vectors / 8; left != 0; --left) add_vectors<8>(lanes, at, c, copy);
  if ((vectors & 4) != 0) add_vectors<4>(lanes, at, c, copy);
  if ((vectors & 2) != 0) add_vectors<2>(lanes, at, c, copy);
  if ((vectors & 1) != 0) add_vectors<1>(lanes, at, c, copy);
  // The last bytes, as the end of a vector in which bytes already added are masked to 0.
  const auto last = load_vector(at + rest - kVector);
  copy.put(at + rest - kVector, last);
  const auto mask = load_vector(kLastBytes.data() + rest);
  lanes = add_vector(lanes, _mm256_and_si256(last, mask), c);
  // Widens to 64 bits with sign, then adds the lanes.
  const auto low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(lanes));
  const auto high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(lanes, 1));
  const auto four = _mm256_add_epi64(low, high);
  const auto two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  const auto sum = _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
  return static_cast<std::uint64_t>(sum) + (vectors + 1) * kBias;
}

[[gnu::target("avx2")]] std::uint64_t sum_vectors(std::span<const std::byte> bytes) {
  return sum_all(bytes, Nowhere{});
}
[[gnu::target("avx2")]] std::uint64_t copy_vectors(std::byte* to, std::span<const std::byte> from) {
  return sum_all(from, Elsewhere{to - from.data()});
}

#endif

}  // namespace

std::uint64_t ChecksumSum::sum_many(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (wide) {
    // The common case.
    if (bytes.size() % 2 == 0 && bytes.size() <= kVectorsMax * kVector) return sum_vectors(bytes);
    return sum_in_parts(bytes);
  }
#endif
  return sum_few(bytes);
}

std::uint64_t ChecksumSum::copy_and_sum(std::byte* to, std::span<const std::byte> from) {
#if defined(__x86_64__)
  const auto size = from.size();
  if (wide && size % 2 == 0 && size >= kMany && size <= kVectorsMax * kVector) {
    return copy_vectors(to, from);
  }
#endif
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return sum(from);
}

std::uint64_t ChecksumSum::sum_in_parts(std::span<const std::byte> bytes) {
  std::uint64_t total = 0;
#if defined(__x86_64__)
  while (bytes.size() >= kVector) {
    const auto part = std::min(bytes.size() / kVector, kVectorsMax) * kVector;
    total += sum_vectors(bytes.first(part));
    bytes = bytes.subspan(part);
  }
#endif
  return total + sum_few(bytes);
}

}  // namespace softhca::wire
