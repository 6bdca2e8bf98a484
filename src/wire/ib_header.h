// Writes packets: the headers of one path are prepared once for an address, and copied for each
// packet. Per packet, only the lengths, the BTH and the extended headers differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "util/hot_assert.h"
#include "wire/ethernet.h"
#include "wire/ib_packet.h"
#include "wire/ipv6.h"
#include "wire/udp.h"
#include "wire/vlan.h"

namespace softhca::wire {

inline constexpr std::uint16_t kRoceUdpPort = spec::infiniband::kRoceV2UdpPort;

class IbHeader {
 public:
  IbHeader() = default;
  /// @pre RoCEv2: source and destination GID are both IPv4-mapped or both not
  explicit IbHeader(const IbAddress& address);

  /// Bytes of a packet's headers, up to and including BTH and extended headers.
  std::size_t size(Opcode opcode) const {
    return path_.size + BthLayout::kSize + info(opcode).headers_size;
  }

  /// Facts that are the same for all packets of one opcode.
  struct Form {
    Opcode opcode{};
    std::uint8_t size = 0;  ///< bytes of BTH and extended headers
  };
  static Form form(Opcode opcode) {
    SOFTHCA_HOT_ASSERT(info(opcode).defined);
    return {opcode, static_cast<std::uint8_t>(BthLayout::kSize + info(opcode).headers_size)};
  }

  /// Begins a packet: sets the sizes of the frame's head and tail, and stores the headers as values
  /// (Frame::defer_headers). The caller sets the opcode's extended headers, and the BTH except its
  /// opcode and pad count, and adds the segments. The CRCs are deferred. Replaces all earlier
  /// contents of the frame.
  /// @pre info(opcode).defined
  TransportHeaders& begin(Opcode opcode, std::size_t payload_size, Frame& frame) const {
    return begin(form(opcode), payload_size, frame);
  }
  TransportHeaders& begin(Form form, std::size_t payload_size, Frame& frame) const {
    SOFTHCA_HOT_ASSERT(path_.size != 0);
    const auto pad = static_cast<std::uint8_t>(-payload_size % 4);
    const auto head_size = std::size_t{path_.size} + form.size;
    auto& headers =
        frame.defer_headers(bytes_, path_, link_, head_size, payload_size, pad + trailer_);
    headers.bth = Bth{};
    headers.bth.opcode = form.opcode;
    headers.bth.pad_count = pad;
    return headers;
  }
  /// The same with all headers set; bth.pad_count is ignored.
  void emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size, Frame& frame) const;

 private:
  static_assert(Frame::kPathHeadersMax >=
                EthernetLayout::kSize + VlanLayout::kSize + Ipv6Layout::kSize + UdpLayout::kSize);
  std::array<std::byte, Frame::kPathHeadersMax> bytes_{};
  PathHeaders path_;
  std::uint8_t trailer_ = 0;  ///< bytes behind the payload and its pad
  Link link_ = Link::kEthernet;
};

}  // namespace softhca::wire
