// The path of packets to a peer, with the port's address that they come from.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "rdma/types.h"
#include "spec/infiniband/constants.h"

namespace softhca::rdma {

using wire::Lid;

/// An address of this port as packets carry it: an entry of the GID table, or a QP's own address.
struct SourceAddress {
  Gid gid{};
  // Ethernet.
  Mac mac{};
  std::optional<std::uint16_t> vlan_id;  ///< 12 bits; tags sent packets, and arriving packets must
                                         ///< match it
  bool roce_v2 = true;                   ///< false: RoCEv1
  // InfiniBand.
  Lid lid{};  ///< 0: the port's LID

  friend bool operator==(const SourceAddress&, const SourceAddress&) = default;
};

/// An address vector (IBTA 11.2.2.1). The port's link decides which of its fields a packet carries.
struct Path {
  // Ethernet.
  Mac dst_mac{};
  std::uint8_t vlan_priority = 0;
  std::uint16_t udp_source_port = spec::infiniband::kUdpSourcePort;  ///< RoCEv2

  // InfiniBand.
  Lid dst_lid{};
  std::uint8_t path_bits = 0;      ///< the bits of the source LID that the LMC leaves open
  std::uint8_t service_level = 0;  ///< 4 bits
  bool global = true;              ///< with a GRH; always on Ethernet

  // GRH, or the IP header in its place.
  Gid dst_gid{};
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t src_gid_index = 0;                          ///< GID table entry of the source
  std::optional<SourceAddress> own_source = std::nullopt;  ///< the source, for an HCA without a GID
                                                           ///< table

  friend bool operator==(const Path&, const Path&) = default;
};

/// Equality in two loads each: these comparisons run for every packet.
inline bool same(const Gid& a, const Gid& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool same(const Mac& a, const Mac& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace softhca::rdma
