// Frames from the host's network on their way into a switch: the work that the kernel has left to
// their receiver is done here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/port.h"
#include "os/frame_file.h"

namespace softhca::server {

/// Most packets that a merged frame may have been: 64 KiB of the shortest segments that TCP agrees
/// on (RFC 9293 3.7.1: 536 bytes).
inline constexpr std::size_t kMergedMax = 128;

struct Arrival {
  std::size_t packets =
      0;  ///< transmitted; 0: the frame is dropped, because `rest` does not fit it
  std::uint64_t number = 0;  ///< of the last one
};

/// Transmits a received frame by `port`: with its checksum, and as the packets that the kernel has
/// merged. They refer to `frame`, which may be changed.
Arrival transmit_arrival(std::span<std::byte> frame, const os::FrameFile::Rest& rest,
                         fabric::Port& port);

}  // namespace softhca::server
