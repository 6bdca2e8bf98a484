// Packets with messages of communication managers, as they arrive at a UDP socket: from the BTH to
// the ICRC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hub/cm_message.h"
#include "spec/infiniband/cm.h"
#include "spec/infiniband/constants.h"
#include "wire/bth.h"
#include "wire/deth.h"

namespace softhca::hub {

using Cm = spec::infiniband::cm_attribute;

/// A service ID: RDMA_PS_TCP and a port number (IBTA Annex A11).
inline constexpr std::uint64_t kService = 0x0106'4711;

struct CmPacket {
  static constexpr std::size_t kMad = wire::BthLayout::kSize + wire::DethLayout::kSize;
  std::array<std::byte, 280> bytes{};

  std::span<std::byte> mad() { return std::span(bytes).subspan(kMad); }
  operator std::span<const std::byte>() const { return bytes; }
};

inline CmPacket cm_packet(Cm attribute, std::uint32_t local, std::uint32_t remote = 0,
                          wire::Qpn qpn = wire::kGsiQpn) {
  namespace s = spec::infiniband;
  CmPacket packet;
  const auto bytes = std::span(packet.bytes);
  wire::Bth bth;
  bth.opcode = wire::Opcode::UD_SEND_ONLY;
  bth.dest_qp = qpn;
  bth.emit(util::MutableView<wire::BthLayout>(bytes));
  wire::Deth{.qkey = wire::QKey(s::kGsiQkey), .src_qp = wire::kGsiQpn}.emit(
      util::MutableView<wire::DethLayout>(bytes.subspan(wire::BthLayout::kSize)));
  const util::MutableView<s::mad_header> header(packet.mad());
  header.set(s::mad_header::base_version, 1);
  header.set(s::mad_header::mgmt_class, 7);
  header.set(s::mad_header::class_version, 2);
  header.set(s::mad_header::method, 3);
  header.set(s::mad_header::attribute_id, static_cast<std::uint32_t>(attribute));
  const util::MutableView<s::cm_rtu> body(packet.mad().subspan(s::mad_header::kSize));
  body.set(s::cm_rtu::local_comm_id, local);
  if (attribute != Cm::SIDR_REP) body.set(s::cm_rtu::remote_comm_id, remote);
  return packet;
}

inline CmPacket cm_request(std::uint64_t service, std::uint32_t number, Cm attribute = Cm::REQ) {
  namespace s = spec::infiniband;
  auto packet = cm_packet(attribute, number);
  const util::MutableView<s::cm_req> body(packet.mad().subspan(s::mad_header::kSize));
  body.set(s::cm_req::service_id, service);
  return packet;
}

}  // namespace softhca::hub
