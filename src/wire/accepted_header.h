// Flow cache of a QP for received packets. Packets of one path differ only in their transport
// headers, so the headers below them need not be parsed again.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::wire {

class AcceptedHeader {
 public:
  /// Caches the address of `packet`, which was parsed from `frame`. Only frames whose headers are
  /// stored as values, and so never left this process, are cached; any other frame clears the
  /// cache.
  void remember(const Frame& frame, const IbPacket& packet) {
    flow_ = kNone;
    if (frame.headers() == nullptr) return;
    packet_ = packet;
    flow_ = frame.flow();
    grh_payload_ = kNone;
  }

  /// True if the frame has the same path.
  bool matches(const Frame& frame) const { return frame.flow() == flow_; }
  /// The result of IbPacket::parse for a matching frame, valid until the next one. Only the frame's
  /// own extended headers are valid.
  const IbPacket& packet(const Frame& frame) {
    const auto& headers = *frame.headers();
    packet_.bth = headers.bth;
    packet_.ext = headers.ext;
    packet_.payload_offset = static_cast<std::uint32_t>(frame.headers_size());
    packet_.payload_size = static_cast<std::uint16_t>(frame.packet_payload());
    return packet_;
  }
  /// emit_ud_grh() for a matching datagram; it depends only on the length.
  [[gnu::always_inline]] void put_ud_grh(const Frame& frame,
                                         std::span<std::byte, GrhLayout::kSize> out) {
    if (frame.packet_payload() != grh_payload_ && !make_ud_grh(frame)) return;
    std::memcpy(out.data(), grh_.data(), grh_.size());
  }

 private:
  [[gnu::noinline]] bool make_ud_grh(const Frame& frame) {
    if (!emit_ud_grh(frame, packet_, grh_)) return false;
    grh_payload_ = frame.packet_payload();
    return true;
  }

  static constexpr FlowId kNone = UINT64_MAX;  ///< of no frame

  IbPacket packet_;      ///< its address and network offset are reused
  FlowId flow_ = kNone;  ///< of the path (PathHeaders)
  /// GRH of the last datagram, and that datagram's payload bytes.
  std::array<std::byte, GrhLayout::kSize> grh_{};
  std::uint64_t grh_payload_ = kNone;
};

}  // namespace softhca::wire
