#include "sdxi/shared_copy.h"

#include <algorithm>
#include <cassert>

#include "sdxi/copy_bytes.h"
#include "sdxi/spin.h"

namespace softhca::sdxi {

bool SharedCopy::open(const Buffers& buffers) {
  assert(buffers.size > 0 && buffers.size / kChunk < kClosed);
  if (owned_.load(std::memory_order_relaxed) || owned_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  to_.store(buffers.to, std::memory_order_relaxed);
  from_.store(buffers.from, std::memory_order_relaxed);
  size_.store(buffers.size, std::memory_order_relaxed);
  whole_.store(buffers.whole, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  state_.store(++openings_ << kNextBits, std::memory_order_release);
  return true;
}

std::uint64_t SharedCopy::copy_next() {
  auto state = state_.load(std::memory_order_acquire);
  for (;;) {
    const auto at = (state & kClosed) * kChunk;
    // These may belong to a later opening by now: then the exchange fails.
    const auto size = size_.load(std::memory_order_relaxed);
    auto* const to = to_.load(std::memory_order_relaxed);
    const auto* const from = from_.load(std::memory_order_relaxed);
    const auto whole = whole_.load(std::memory_order_relaxed);
    if (at >= size) return 0;
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    const auto length = std::min(kChunk, size - at);
    copy_bytes(to + at, from + at, length, whole);
    finished_.fetch_add(1, std::memory_order_release);
    return length;
  }
}

std::uint64_t SharedCopy::bytes(std::uint64_t chunks) const {
  return std::min(chunks * kChunk, size_.load(std::memory_order_relaxed));
}

std::uint64_t SharedCopy::taken() const {
  return bytes(state_.load(std::memory_order_relaxed) & kClosed);
}

std::uint64_t SharedCopy::close() {
  const auto chunks = state_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed;
  for (unsigned tries = 0; finished_.load(std::memory_order_acquire) != chunks; ++tries) {
    spin_or_yield(tries);
  }
  const auto done = bytes(chunks);
  owned_.store(false, std::memory_order_release);
  return done;
}

}  // namespace softhca::sdxi
