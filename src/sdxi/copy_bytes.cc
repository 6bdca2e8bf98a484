#include "sdxi/copy_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "util/unordered_access.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace softhca::sdxi {
namespace {

/// Used if the C library does not report cache sizes. Measured with 32 MiB of L3: non-temporal
/// stores are faster from there on (27 against 20 GB/s for 64 MiB), and slower below 16 MiB.
constexpr std::uint64_t kUsualCache = std::uint64_t{32} << 20;
/// Copies up to this size always use the caches: no cache size is queried.
constexpr std::uint64_t kAlwaysCached = std::uint64_t{1} << 20;

#if defined(__SSE2__)
constexpr std::size_t kLine = 64;

/// Copies whole cache lines; `to` is aligned to one.
void stream(std::byte* to, const std::byte* from, std::size_t size) {
  // Non-temporal stores are not ordered. SDXI 5.6: the cleared valid bit is visible before any of
  // them, and the completion after all.
  _mm_sfence();
  for (std::size_t at = 0; at < size; at += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    const auto a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
               d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
}
#endif

}  // namespace

std::uint64_t streaming_from() {
  static const auto size = [] {
    const auto cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return cache > 0 ? std::max(static_cast<std::uint64_t>(cache), kAlwaysCached + 1) : kUsualCache;
  }();
  return size;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t size, std::uint64_t whole) {
  const util::UnorderedAccess guests;  // ordering source and target accesses is the producers' duty
#if defined(__SSE2__)
  if (whole > kAlwaysCached && whole >= streaming_from()) [[unlikely]] {
    const auto head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    if (size > head) {
      const auto lines = (size - head) / kLine * kLine;
      std::memmove(to, from, head);
      stream(to + head, from + head, lines);
      std::memmove(to + head + lines, from + head + lines, size - head - lines);
      return;
    }
  }
#else
  (void)whole;
#endif
  // No fence: where glibc's memmove() uses non-temporal stores, it ends them with sfence.
  std::memmove(to, from, size);
}

}  // namespace softhca::sdxi
