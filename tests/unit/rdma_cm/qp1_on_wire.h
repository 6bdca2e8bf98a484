// Management datagrams between QP1s on the wire: as frames, and recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>

#include "cm/message.h"
#include "driver/address.h"
#include "fabric/tap.h"
#include "wire/ib_header.h"

namespace softhca::rdma_cm {

/// Records the last `most` datagrams.
class Ear final : public fabric::Tap {
 public:
  explicit Ear(std::size_t most = SIZE_MAX) : most_(most) {}

  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t, const wire::Frame& frame) override {
    const auto packet = wire::IbPacket::parse(frame);
    if (!packet || packet->bth.dest_qp != wire::Qpn(1)) return;
    cm::Mad mad;
    if (packet->payload_size != mad.size()) return;
    frame.copy_range(packet->payload_offset, mad);
    if (heard.size() == most_) heard.pop_front();
    heard.push_back(mad);
  }

  std::deque<cm::Mad> heard;

 private:
  const std::size_t most_;
};

/// A datagram from QP1 of a peer to QP1 of the host. The frame has a copy of `mad`.
inline wire::Frame qp1_frame(const cm::Mad& mad, const driver::Gid& from, const driver::Gid& to,
                             wire::Encapsulation encapsulation = wire::Encapsulation::kRoceV2) {
  wire::IbAddress address;
  address.encapsulation = encapsulation;
  address.destination_mac = wire::MacAddress{{std::byte{2}}};
  address.source_mac = wire::MacAddress::from_u64(0x020000000009);
  address.source_gid = from;
  address.destination_gid = to;
  address.hop_limit = cm::kHopLimit;
  wire::Bth bth;
  bth.opcode = wire::Opcode::UD_SEND_ONLY;
  bth.dest_qp = wire::Qpn(1);
  wire::ExtHeaders ext;
  ext.deth = {wire::QKey(softhca::spec::infiniband::kGsiQkey), wire::Qpn(1)};
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, ext, mad.size(), frame);
  (void)frame.add_segment(mad);
  (void)frame.own_segments();
  return frame;
}

}  // namespace softhca::rdma_cm
