#include "subnet/mad.h"

#include "wire/ib_header.h"
#include "wire/ib_packet.h"

namespace softhca::subnet {

namespace {

using spec::infiniband::kDefaultPkey;
using spec::infiniband::kGsiQkey;
using spec::infiniband::kManagementLane;

}  // namespace

void write_mad(const Mad& mad, const MadRoute& route, wire::Frame& frame) {
  const bool to_smi = route.destination_qpn == kSmiQpn;
  wire::IbAddress address;
  address.encapsulation = wire::Encapsulation::kLocal;
  address.destination_lid = route.destination;
  address.source_lid = route.source;
  address.virtual_lane = to_smi ? kManagementLane : std::uint8_t{0};
  frame.clear();
  auto& [bth, ext] = wire::IbHeader(address).begin(wire::Opcode::UD_SEND_ONLY, mad.size(), frame);
  bth.pkey = kDefaultPkey;
  bth.dest_qp = route.destination_qpn;
  ext.deth.qkey = wire::QKey(to_smi ? 0 : kGsiQkey);
  ext.deth.src_qp = route.source_qpn;
  std::ranges::copy(mad, frame.own_payload(mad.size()).begin());
}

bool is_for_smi(const wire::Frame& frame) {
  if (const auto* headers = frame.headers()) return headers->bth.dest_qp == kSmiQpn;
  const auto packet = wire::IbPacket::parse(frame);
  return packet && packet->bth.dest_qp == kSmiQpn;
}

std::optional<ArrivedMad> read_mad(const wire::Frame& frame) {
  if (frame.link() != wire::Link::kInfiniband) return std::nullopt;
  const auto packet = wire::IbPacket::parse(frame);
  if (!packet || packet->bth.opcode != wire::Opcode::UD_SEND_ONLY) return std::nullopt;
  const bool to_smi = packet->bth.dest_qp == kSmiQpn;
  if (!to_smi && packet->bth.dest_qp != wire::kGsiQpn) return std::nullopt;
  if (packet->ext.deth.qkey != wire::QKey(to_smi ? 0 : kGsiQkey)) return std::nullopt;
  // IBTA 7.6: QP0 uses lane 15 only, and no other QP uses it.
  if (to_smi != (packet->address.virtual_lane == kManagementLane)) return std::nullopt;
  ArrivedMad out;
  if (packet->payload_size != out.mad.size()) return std::nullopt;
  frame.copy_range(packet->payload_offset, out.mad);
  out.route = {packet->address.source_lid, packet->address.destination_lid, packet->ext.deth.src_qp,
               packet->bth.dest_qp};
  return out;
}

}  // namespace softhca::subnet
