// Copies a frame to the memory where it is received, and computes a deferred checksum in the same
// pass.
#pragma once

#include <cstddef>
#include <cstring>

#include "util/copy_short.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Fast path of copy_frame() for a frame with a deferred checksum. False, with no effect, if `to`
/// overlaps its payload.
bool copy_frame_fast(const wire::Frame& frame, const wire::PayloadChecksum& checksum,
                     std::byte* to);

/// Copies the whole frame unchanged, from the first byte to the last. The destination may overlap
/// the memory that the frame refers to. @pre it is no train
inline void copy_frame(const wire::Frame& frame, std::byte* to) {
  const auto* const checksum = frame.deferred_checksum();
  if (checksum != nullptr && copy_frame_fast(frame, *checksum, to)) return;
  const auto head = frame.head();
  util::copy_header(to, head.data(), head.size());
  to += head.size();
  for (const auto& segment : frame.segments()) {
    std::memmove(to, segment.data(), segment.size());
    to += segment.size();
  }
  if (frame.tail_size() != 0) std::memcpy(to, frame.tail().data(), frame.tail_size());
}

}  // namespace softhca::ethernet
