// What a QP knows of the packets that it gets: those of one path differ in their transport headers
// alone, and nobody needs to take apart again what comes before these.
#pragma once

#include <cstdint>

#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::wire {

class SeenHeader {
 public:
  /// Keeps the address of `packet`, which was parsed from `frame`. Only of a frame whose headers
  /// stand as values, so it never left this process; forgets them otherwise.
  void remember(const Frame& frame, const IbPacket& packet) {
    number_ = kNone;
    if (frame.headers() == nullptr) return;
    packet_ = packet;
    number_ = frame.path().number;
  }

  /// The packet that is remembered: in address and network offset those of frames that match are
  /// like it.
  const IbPacket& like() const { return packet_; }
  /// Whether the frame is of the same path.
  bool matches(const Frame& frame) const { return frame.path_number() == number_; }
  /// IbPacket::parse of a frame that matches, which is good until the next one; of the extended
  /// headers only those that it has.
  const IbPacket& packet(const Frame& frame) {
    const auto& headers = *frame.headers();
    packet_.bth = headers.bth;
    packet_.ext = headers.ext;
    packet_.payload_offset = static_cast<std::uint32_t>(frame.headers_size());
    packet_.payload_size = static_cast<std::uint16_t>(frame.packet_payload());
    return packet_;
  }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;  ///< no path has it

  IbPacket packet_;               ///< whose address and network offset stay
  std::uint64_t number_ = kNone;  ///< of the path (PathHeaders)
};

}  // namespace softhca::wire
