// The addresses of a port: the headers below the BTH that its packets carry, and the packets that
// it accepts.
//
// The link decides the format. On Ethernet it is RoCE, version 1 or 2 by the source address. On
// InfiniBand it is an LRH, plus a GRH if the path is global.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rdma/gid_table.h"
#include "rdma/path.h"
#include "rdma/reasons.h"
#include "spec/infiniband/constants.h"
#include "util/clock.h"
#include "wire/frame.h"
#include "wire/ib_address.h"

namespace softhca::rdma {

/// Properties of a port that are fixed at its set-up.
struct PortOptions {
  wire::Link link = wire::Link::kEthernet;
  std::size_t gids = 0;               ///< GID table entries
  std::size_t multicast_groups = 0;   ///< most groups that may have members
  std::size_t multicast_members = 0;  ///< most QPs in one group
  /// Send requests that all QPs together may have in flight, besides one for each QP. The size of a
  /// WQE bounds the memory of one request.
  std::size_t requests = std::size_t{1} << 16;
  /// Most connections of all DC targets together.
  std::size_t dc_connections = 4096;
  /// Lower bound of the Local ACK Timeout of every QP. Software peers must wait for a CPU now and
  /// then and may answer late.
  util::Duration ack_timeout_min{0};
};

/// Attributes that a subnet manager sets on a port of an InfiniBand link: PortInfo and
/// SLtoVLMappingTable (IBTA 14.2.5.6, 14.2.5.8).
struct LinkAttributes {
  Lid lid{};
  std::uint8_t lmc = 0;  ///< number of low LID bits that are open, at most kLmcMax
  std::array<std::uint8_t, spec::infiniband::kServiceLevels> virtual_lanes{};  ///< by SL
};

class PortAddresses {
 public:
  explicit PortAddresses(const PortOptions& options) : gids(options.gids), link_(options.link) {}

  GidTable gids;

  wire::Link link() const { return link_; }
  void set_attributes(const LinkAttributes& attributes);
  /// Changes with every modification of this object; never 0. Headers prepared for a path stay
  /// valid as long as this is the same.
  std::uint32_t generation() const { return gids.generation() + changes_; }

  // Egress: the address of packets on `path`. On any result but kNone there is no such path, and
  // `address` is unchanged.
  Reason make_address(const Path& path, wire::IbAddress& address) const;

  // Ingress. `path`: the path of the QP that the packet is for.

  /// True if the packet's destination is an address of this port, or the QP's own address.
  bool is_ours(const Path& path, const wire::IbAddress& address) const;
  /// True if the port accepts the packet as multicast: to the group's own MAC, in a VLAN of the
  /// port or of the QP. `path`: the path of a member.
  bool is_multicast_for(const Path& path, const wire::IbAddress& address) const;
  /// True if the packet comes from the other end of the path. On Ethernet both ends use the same
  /// RoCE version, that of the path's source.
  bool is_from_peer(const Path& path, const wire::IbAddress& address) const {
    if (link_ == wire::Link::kInfiniband) return is_from_peer_on_infiniband(path, address);
    const auto* source = source_of(path);
    const bool roce_v2 = address.encapsulation == wire::Encapsulation::kRoceV2;
    return same(address.source_gid, path.dst_gid) &&
           (source == nullptr || source->roce_v2 == roce_v2);
  }
  /// True if the packet's source is an address of this port, or the QP's own address.
  bool is_from_here(const Path& path, const wire::IbAddress& address) const;
  /// The bits of the destination LID that the LMC leaves open.
  std::uint8_t path_bits(const wire::IbAddress& address) const;

 private:
  const SourceAddress* source_of(const Path& path) const {
    return path.own_source ? &*path.own_source : gids.get(path.src_gid_index);
  }
  std::uint16_t open_bits() const;
  Reason make_ethernet(const Path& path, wire::IbAddress& address) const;
  Reason make_infiniband(const Path& path, wire::IbAddress& address) const;
  bool is_from_peer_on_infiniband(const Path& path, const wire::IbAddress& address) const;
  bool is_ours_on_infiniband(const Path& path, const wire::IbAddress& address) const;

  wire::Link link_;
  LinkAttributes attributes_;
  std::uint32_t changes_ = 1;
};

}  // namespace softhca::rdma
