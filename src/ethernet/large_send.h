// Packets of a large send (segmentation.h) that stay together on their way through this process, as
// a train (wire/train.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ethernet/packet_info.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Which checksums the packets get when they are made.
struct LargeSendChecksums {
  bool l3 = false;
  bool l4 = false;
};

/// Makes a train of a packet that Segmenter has made, not the last of its message: it and those
/// behind it, `packets` in all. The frame has the headers of the first, without checksums, and the
/// payload of all, `payload` bytes of each.
/// @pre packets > 1
void make_train(wire::Frame& frame, unsigned packets, std::size_t payload,
                LargeSendChecksums checksums);

}  // namespace softhca::ethernet
