// The way out: the prepared headers of one path, made once for an address, written once per packet.
// Per packet only the lengths, BTH and the extended headers differ, and the lengths mostly not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

  /// Headers of a packet, up to and including BTH and extended headers.
  std::size_t size(Opcode opcode) const {
    return size_ + BthLayout::kSize + info(opcode).headers_size;
  }

  /// Writes the frame's head, and the tail: pad and room for the CRCs, which are deferred. The pad
  /// count follows from `payload_size`; bth.pad_count is ignored. The segments are the caller's.
  /// @pre info(bth.opcode).defined
  void emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size, Frame& frame);

 private:
  /// The headers that hold a length.
  enum class Form : std::uint8_t { kIpv4, kIpv6, kGrh, kLrh, kLrhGrh };

  void set_lengths(std::size_t rest);

  static constexpr std::size_t kCapacity =
      EthernetLayout::kSize + VlanLayout::kSize + Ipv6Layout::kSize + UdpLayout::kSize;
  std::array<std::byte, kCapacity> bytes_{};
  std::size_t rest_ = 0;             ///< bytes behind it that its lengths tell of; 0: none yet
  std::uint16_t checksum_base_ = 0;  ///< IPv4: of the header with a length of 0
  std::uint8_t size_ = 0;
  std::uint8_t network_offset_ = 0;
  std::uint8_t trailer_ = 0;  ///< bytes behind the payload and its pad
  Form form_ = Form::kIpv4;
  Link link_ = Link::kEthernet;
};

}  // namespace softhca::wire
