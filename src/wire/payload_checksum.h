// An internet checksum (RFC 1071) in the headers of a frame that also covers its payload, such as
// that of TCP or UDP.
#pragma once

#include <cstdint>

namespace softhca::wire {

/// A checksum that is not computed yet. Its bytes are made when they are needed, or together with a
/// copy of the payload (put_checksum() in checksum.h).
struct PayloadChecksum {
  std::uint64_t sum;   ///< of everything but the payload that it covers, not inverted
  std::uint16_t at;    ///< its offset in the head
  std::uint16_t zero;  ///< replaces a checksum of 0
};

}  // namespace softhca::wire
