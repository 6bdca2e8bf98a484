// Addresses in the form of QP contexts and ud units: LIDs, or MACs in two parts and IPv4 addresses
// as numbers (JingZhao 3.2.6.1, 3.4.4).
#pragma once

#include <cstdint>

#include "rdma/path.h"
#include "util/field.h"

namespace softhca::jingzhao {

/// A MAC from bits 47:16 and 15:0; bits 47:40 are the first byte on the wire.
inline rdma::Mac make_mac(std::uint32_t high, std::uint32_t low) {
  return rdma::Mac::from_u64(std::uint64_t{high} << 16 | low);  // no format: joins two fields
}

/// The path between the two addresses in `view` (a QP context or a ud unit).
template <class Layout>
rdma::Path make_path(util::View<Layout> view, wire::Link link) {
  rdma::Path path;
  if (link == wire::Link::kInfiniband) {
    // The fields of a GRH and the service level are unused: packets stay in the subnet.
    path.global = false;
    path.dst_lid = rdma::Lid(static_cast<std::uint16_t>(view.get(Layout::dlid_dmac)));
    path.own_source.emplace();
    path.own_source->lid = rdma::Lid(static_cast<std::uint16_t>(view.get(Layout::slid_smac)));
    return path;
  }
  path.udp_source_port = 4791;  // as the RTL does
  path.dst_mac = make_mac(view.get(Layout::dmac_h), view.get(Layout::dlid_dmac));
  path.dst_gid = rdma::Gid::from_ipv4(view.get(Layout::dip));
  rdma::SourceAddress source;
  source.mac = make_mac(view.get(Layout::smac_h), view.get(Layout::slid_smac));
  source.gid = rdma::Gid::from_ipv4(view.get(Layout::sip));
  path.own_source = source;
  return path;
}

}  // namespace softhca::jingzhao
