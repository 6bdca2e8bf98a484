// The send queue of a FrameSender: writes Ethernet frames into the ring, without ringing the
// doorbell.
#pragma once

#include <array>

#include "driver/connectx/send_ring.h"

namespace softhca::driver::connectx {

class FrameSendQueue : public SendRing {
 public:
  /// Blocks that the largest request needs, with headers of `inline_size`.
  static unsigned blocks_per_request(const Limits& limits);

  PostStatus post(const FrameRequest& request);

 private:
  /// The fixed part of the last request, if that request is one block with one piece.
  struct Template {
    std::size_t header_size = 0;  ///< bytes; 0: no template
    std::size_t data_offset = 0;
    std::uint16_t segment_size = 0;
    bool checksums = false;
    std::array<std::byte, spec::wqe_ctrl_segment::kSize + spec::wqe_eth_segment::kSize> fixed{};
  };

  PostStatus post_any(const FrameRequest& request);
  void make_template(const FrameRequest& request, std::span<const std::byte> fixed,
                     std::uint32_t blocks);

  Template template_;
};

}  // namespace softhca::driver::connectx
