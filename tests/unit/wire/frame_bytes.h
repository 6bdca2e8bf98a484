// A frame's bytes, for comparisons in tests.
#pragma once

#include <cstddef>
#include <vector>

#include "wire/frame.h"

namespace softhca::wire {

inline std::vector<std::byte> bytes_of(const Frame& frame) {
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  return bytes;
}

}  // namespace softhca::wire
