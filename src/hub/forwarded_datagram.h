// A UDP datagram that the hub forwards to a process: it has arrived at the hub's socket
// (roce_group.h) and is for a QP of the process. It crosses the process's ring in a frame of its
// own, with what the process's own socket would say about it. Only the hub sends such frames
// (link_note.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "hub/link_note.h"
#include "hub/roce_group.h"
#include "wire/frame.h"
#include "wire/gid.h"
#include "wire/mac_address.h"

namespace softhca::hub {

struct ForwardedDatagram {
  static constexpr std::size_t kPacketMax = 512;

  wire::Gid to;  ///< the address of the socket
  RoceGroup::Datagram datagram;

  /// `packet` of the result refers to `bytes`. Nothing: another frame.
  static std::optional<ForwardedDatagram> parse(std::span<const std::byte> bytes);
  /// The frame refers to the packet. @pre the packet has 1 to kPacketMax bytes
  void write(const wire::MacAddress& receiver, wire::Frame& frame) const;
  /// Bytes in front of the packet.
  static constexpr std::size_t kHeaderSize = LinkNote::kSize + 2 * wire::Gid::kSize + 4;
  static constexpr std::size_t kFrameMax = kHeaderSize + kPacketMax;
};

}  // namespace softhca::hub
