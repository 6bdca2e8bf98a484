// Routes of QPs and address handles: the checks of ib_core and mlx5_ib on an address vector before
// the device gets it.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

#include "uverbs/device.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// A program's ah_attr, from either of its structures.
struct AddressVector {
  driver::Gid destination;
  bool is_global = false;
  std::uint8_t source = 0;  ///< GID index
  std::uint8_t port = 0;
  std::uint8_t static_rate = 0;
  std::uint8_t hop_limit = 0;
};
AddressVector address_vector(const ib_uverbs_qp_dest& dest);
AddressVector address_vector(const ib_uverbs_ah_attr& attr);

/// The fields that a device needs besides the address vector.
struct Route {
  driver::Mac mac;
  std::uint8_t hop_limit = 0;
};

/// EINVAL: the address vector has no GRH. ENODATA: the table has no such GID (rdma_fill_sgid_attr).
Errno check_source(const Device& device, const AddressVector& to);
/// Finds the MAC, and asks the network for at most a second. ETIMEDOUT: no answer
/// (ib_resolve_eth_dmac).
/// @pre check_source() is 0
Errno find_route(const Device& device, const AddressVector& to, Route& route);
/// Whether it is a value of ib_rate.
bool is_rate(std::uint8_t rate);

/// The UDP source port of a RoCE v2 connection. A flow label of 0 counts as not set
/// (rdma_flow_label_to_udp_sport, rdma_calc_flow_label).
std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t qpn, std::uint32_t peer);

}  // namespace softhca::uverbs
