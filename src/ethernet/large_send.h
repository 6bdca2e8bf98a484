// Keeps packets of a large send (segmentation.h) together as a train (wire/train.h) while they are
// in this process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ethernet/packet_info.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// The checksums that packets get when they are made.
struct LargeSendChecksums {
  bool l3 = false;
  bool l4 = false;
};

/// Turns a packet of Segmenter, not the last of its message, into a train of it and the packets
/// behind it, `packets` in total. The frame has the headers of the first packet, without checksums,
/// and the payload of all, `payload` bytes per packet.
/// @pre packets > 1
void make_train(wire::Frame& frame, unsigned packets, std::size_t payload,
                LargeSendChecksums checksums);

}  // namespace softhca::ethernet
