#include "rdma/port_addresses.h"

#include <cassert>

#include "wire/group_mac.h"
#include "wire/vlan.h"

namespace softhca::rdma {
namespace {

using wire::Encapsulation;
using wire::Link;

/// Priority-tagged packets (VLAN 0) belong to no VLAN (IEEE 802.1Q 9.6).
std::optional<std::uint16_t> vlan_of(const wire::IbAddress& address) {
  if (!address.vlan_tci) return std::nullopt;
  const auto vid = wire::Vlan{*address.vlan_tci, {}}.vid();
  return vid != 0 ? std::optional(vid) : std::nullopt;
}

void copy_global(const Path& path, const SourceAddress& source, wire::IbAddress& address) {
  address.source_gid = source.gid;
  address.destination_gid = path.dst_gid;
  address.traffic_class = path.traffic_class;
  address.flow_label = path.flow_label;
  address.hop_limit = path.hop_limit;
}

}  // namespace

void PortAddresses::set_attributes(const LinkAttributes& attributes) {
  assert(attributes.lmc <= spec::infiniband::kLmcMax);
  attributes_ = attributes;
  ++changes_;
}

std::uint16_t PortAddresses::open_bits() const {
  return static_cast<std::uint16_t>((1u << attributes_.lmc) - 1);
}

std::uint8_t PortAddresses::path_bits(const wire::IbAddress& address) const {
  return static_cast<std::uint8_t>(address.destination_lid.value() & open_bits());
}

// Egress -----------------------------------------------------------------------------------------

Reason PortAddresses::make_address(const Path& path, wire::IbAddress& address) const {
  return link_ == Link::kEthernet ? make_ethernet(path, address) : make_infiniband(path, address);
}

Reason PortAddresses::make_ethernet(const Path& path, wire::IbAddress& address) const {
  const auto* source = source_of(path);
  if (source == nullptr) return Reason::kNoSourceAddress;
  // IBTA Annex A17 17.4.2: the GIDs determine the IP version.
  if (source->roce_v2 && source->gid.is_ipv4() != path.dst_gid.is_ipv4()) {
    return Reason::kNoSourceAddress;
  }
  address = {};
  address.encapsulation = source->roce_v2 ? Encapsulation::kRoceV2 : Encapsulation::kRoceV1;
  address.destination_mac = path.dst_mac;
  address.source_mac = source->mac;
  if (source->vlan_id)
    address.vlan_tci = wire::Vlan::make_tci(*source->vlan_id, path.vlan_priority);
  address.udp_source_port = source->roce_v2 ? path.udp_source_port : std::uint16_t{0};
  copy_global(path, *source, address);
  return Reason::kNone;
}

Reason PortAddresses::make_infiniband(const Path& path, wire::IbAddress& address) const {
  const auto* source = source_of(path);
  if (path.global && source == nullptr) return Reason::kNoSourceAddress;
  assert(path.service_level < spec::infiniband::kServiceLevels);
  const auto lane = attributes_.virtual_lanes[path.service_level];
  if (lane == spec::infiniband::kManagementLane) return Reason::kNoVirtualLane;
  address = {};
  address.encapsulation = path.global ? Encapsulation::kGlobal : Encapsulation::kLocal;
  address.destination_lid = path.dst_lid;
  address.source_lid = path.own_source && path.own_source->lid != Lid(0)
                           ? path.own_source->lid
                           : Lid(attributes_.lid.value() | (path.path_bits & open_bits()));
  address.service_level = path.service_level;
  address.virtual_lane = lane;
  if (path.global) copy_global(path, *source, address);
  return Reason::kNone;
}

// Ingress ----------------------------------------------------------------------------------------

bool PortAddresses::is_ours(const Path& path, const wire::IbAddress& address) const {
  if (link_ == Link::kInfiniband) return is_ours_on_infiniband(path, address);
  const bool roce_v2 = address.encapsulation == Encapsulation::kRoceV2;
  const auto vlan = vlan_of(address);
  // Try the QP's own address first: it is the common case.
  const auto* own = source_of(path);
  const bool is_own = own != nullptr && own->roce_v2 == roce_v2 &&
                      same(own->gid, address.destination_gid) && own->vlan_id == vlan;
  const auto* entry = is_own ? own : gids.find(address.destination_gid, vlan, roce_v2);
  if (entry == nullptr) return false;
  return same(entry->mac, address.destination_mac) || gids.has_mac(address.destination_mac);
}

bool PortAddresses::is_multicast_for(const Path& path, const wire::IbAddress& address) const {
  if (link_ == Link::kInfiniband) return true;
  if (!same(mac_of_group(address.destination_gid), address.destination_mac)) return false;
  const bool roce_v2 = address.encapsulation == Encapsulation::kRoceV2;
  const auto vlan = vlan_of(address);
  const auto& own = path.own_source;
  if (own) return own->roce_v2 == roce_v2 && own->vlan_id == vlan;
  return gids.has_vlan(vlan, roce_v2);
}

/// IBTA 9.6.1.5: checks the LID, and the GID if there is a GRH.
bool PortAddresses::is_ours_on_infiniband(const Path& path, const wire::IbAddress& address) const {
  const auto& own = path.own_source;
  const auto lid = own && own->lid != Lid(0) ? own->lid : attributes_.lid;
  const auto difference = address.destination_lid.value() ^ lid.value();
  if ((difference & ~open_bits()) != 0) return false;
  if (!address.is_global()) return true;
  return (own && same(own->gid, address.destination_gid)) || gids.contains(address.destination_gid);
}

bool PortAddresses::is_from_peer_on_infiniband(const Path& path,
                                               const wire::IbAddress& address) const {
  // Behind a router the source LID is the router's, so only the GID identifies the peer.
  if (path.global) return address.is_global() && same(address.source_gid, path.dst_gid);
  return address.source_lid == path.dst_lid;
}

bool PortAddresses::is_from_here(const Path& path, const wire::IbAddress& address) const {
  return gids.contains(address.source_gid) ||
         (path.own_source && same(path.own_source->gid, address.source_gid));
}

}  // namespace softhca::rdma
