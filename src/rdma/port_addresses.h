// The addresses of a port: what its packets carry below the BTH, and which packets are for it.
//
// Its link decides: on Ethernet RoCE, version 1 or 2 as each source address says; on InfiniBand an
// LRH, with a GRH if the path is global.
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

/// What a port is, from its set-up on.
struct PortOptions {
  wire::Link link = wire::Link::kEthernet;
  std::size_t gids = 0;               ///< entries of the GID table
  std::size_t multicast_groups = 0;   ///< groups that may have members
  std::size_t multicast_members = 0;  ///< QPs that a group may have
  /// Send requests that all QPs together may have in flight, besides one for each QP. What a
  /// request keeps is bounded by the size of a work queue entry.
  std::size_t requests = std::size_t{1} << 16;
  /// Connections that all DC targets together may have.
  std::size_t dc_connections = 4096;
  /// Who waits for an acknowledgement waits so long, where its QP's Local ACK Timeout is shorter.
  /// For peers whose devices are programs, which must wait for a processor now and then.
  util::Duration ack_timeout_min{0};
};

/// What a subnet manager gives to a port of an InfiniBand link: PortInfo and SLtoVLMappingTable
/// (IBTA 14.2.5.6, 14.2.5.8).
struct LinkAttributes {
  Lid lid{};
  std::uint8_t lmc = 0;  ///< how many low bits of the LID are open, at most kLmcMax
  std::array<std::uint8_t, spec::infiniband::kServiceLevels> virtual_lanes{};  ///< of each SL
};

class PortAddresses {
 public:
  explicit PortAddresses(const PortOptions& options) : gids(options.gids), link_(options.link) {}

  GidTable gids;

  wire::Link link() const { return link_; }
  const LinkAttributes& attributes() const { return attributes_; }
  void set_attributes(const LinkAttributes& attributes);
  /// Changes with everything here; never 0. Headers that are made for a path are good as long as
  /// this is the same.
  std::uint32_t generation() const { return gids.generation() + changes_; }

  // Out: what packets on `path` carry. Not kNone: there is no such way, and `address` is as it was.
  Reason make_address(const Path& path, wire::IbAddress& address) const;

  // In. `path`: of the QP that the packet is for.

  /// Whether the packet is for an address of this port, or of the QP's own.
  bool is_ours(const Path& path, const wire::IbAddress& address) const;
  /// Whether the packet is for a multicast group as this port hears it: to the group's own MAC, in
  /// a VLAN that the port or the QP is in. `path`: of a member.
  bool is_multicast_for(const Path& path, const wire::IbAddress& address) const;
  /// Whether the packet comes from the other end of the path. On Ethernet both ends speak the same
  /// version of RoCE: that of the path's source.
  bool is_from_peer(const Path& path, const wire::IbAddress& address) const {
    if (link_ == wire::Link::kInfiniband) return is_from_peer_on_infiniband(path, address);
    const auto* source = source_of(path);
    const bool roce_v2 = address.encapsulation == wire::Encapsulation::kRoceV2;
    return same(address.source_gid, path.dst_gid) &&
           (source == nullptr || source->roce_v2 == roce_v2);
  }
  /// Whether the packet comes from an address of this port, or of the QP's own.
  bool is_from_here(const Path& path, const wire::IbAddress& address) const;
  /// Those bits of the destination LID that the LMC leaves open.
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
