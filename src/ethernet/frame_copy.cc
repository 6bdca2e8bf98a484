#include "ethernet/frame_copy.h"

#include "wire/checksum.h"

namespace softhca::ethernet {

bool copy_frame_fast(const wire::Frame& frame, const wire::PayloadChecksum& checksum,
                     std::byte* to) {
  const auto payload = frame.segments()[0];
  auto* const behind = to + frame.head_size();
  // Unsigned, so that it holds in both directions.
  const auto apart = static_cast<std::size_t>(behind - payload.data());
  if (apart < payload.size() || -apart < payload.size()) return false;
  util::copy_header(to, frame.head_room().data(), frame.head_size());
  wire::put_checksum(checksum, to, wire::ChecksumSum::copy(behind, payload));
  return true;
}

}  // namespace softhca::ethernet
