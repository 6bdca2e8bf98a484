// A frame whose checksum is deferred, for tests.
#pragma once

#include <algorithm>
#include <vector>

#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace softhca::wire {

/// A head of 50 bytes with a checksum at byte 40, which covers the payload and 0x1234; then the
/// payload.
struct Deferred {
  explicit Deferred(std::size_t size, std::uint16_t zero = 0) : payload(size) {
    for (std::size_t i = 0; i != size; ++i) payload[i] = std::byte(i * 31);
    std::ranges::fill(frame.begin(50, payload), std::byte{0xEE});
    frame.defer_checksum({.sum = 0x1234, .at = 40, .zero = zero});
    expected.assign(50, std::byte{0xEE});
    expected.insert(expected.end(), payload.begin(), payload.end());
    ChecksumSum sum;
    sum.add_u16(0x1234);
    sum.add(payload);
    util::store_be16(expected.data() + 40, sum.checksum());
  }

  std::vector<std::byte> payload;
  Frame frame;
  std::vector<std::byte> expected;
};

}  // namespace softhca::wire
