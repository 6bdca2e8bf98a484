// Where packets of a QP or of an address handle go, as ib_core and mlx5_ib look at an address
// vector before a device sees it.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

#include "uverbs/device.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// ah_attr of a program, whichever structure it stands in.
struct AddressVector {
  driver::Gid destination;
  bool is_global = false;
  std::uint8_t source = 0;  ///< index of the GID
  std::uint8_t port = 0;
  std::uint8_t static_rate = 0;
  std::uint8_t hop_limit = 0;
};
AddressVector address_vector(const ib_uverbs_qp_dest& dest);
AddressVector address_vector(const ib_uverbs_ah_attr& attr);

/// What a device needs beside.
struct Route {
  driver::Mac mac;
  std::uint8_t hop_limit = 0;
};

/// EINVAL for an address vector without a GRH, and ENODATA where the table has no GID
/// (rdma_fill_sgid_attr).
Errno check_source(const Device& device, const AddressVector& to);
/// Asks the network for the MAC, for a second at most. ETIMEDOUT: there is no answer
/// (ib_resolve_eth_dmac).
/// @pre check_source() is 0
Errno find_route(const Device& device, const AddressVector& to, Route& route);
/// ib_rate: one that there is.
bool is_rate(std::uint8_t rate);

/// The UDP source port of a connection with RoCE v2. A flow label of 0 is none
/// (rdma_flow_label_to_udp_sport, rdma_calc_flow_label).
std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t qpn, std::uint32_t peer);

}  // namespace softhca::uverbs
