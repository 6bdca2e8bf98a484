#include "uverbs/route.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "spec/infiniband/constants.h"

namespace softhca::uverbs {
namespace {

/// IB_RATE_2_5_GBPS and IB_RATE_800_GBPS of ib_verbs.h; 0 means the port's rate.
constexpr std::uint8_t kRateMin = 2, kRateMax = 23;
/// Linux's default for routes.
constexpr std::uint8_t kHopLimit = 64;

/// fe80::/64, the prefix that ib_core treats as link-local.
bool has_link_local_prefix(const driver::Gid& gid) {
  constexpr std::byte kPrefix[8] = {std::byte{0xfe}, std::byte{0x80}};
  return std::memcmp(gid.bytes.data(), kPrefix, sizeof kPrefix) == 0;
}

/// The MAC from which a link-local address was formed (RFC 4291 appendix A).
driver::Mac mac_of_link_local(const driver::Gid& gid) {
  const auto* at = gid.bytes.data();
  return {{at[8] ^ std::byte{2}, at[9], at[10], at[13], at[14], at[15]}};
}

bool is_ipv4(const driver::Gid& gid, std::uint32_t address) {
  return gid.is_ipv4() && util::load_be32(gid.bytes.data() + 12) == address;
}

/// A link-local source reaches only link-local destinations. :: and ::1 are never reached.
bool has_ipv6_route(const driver::Gid& from, const driver::Gid& to) {
  const bool is_local_to_host = std::all_of(to.bytes.begin(), to.bytes.end() - 1,
                                            [](std::byte byte) { return byte == std::byte{0}; }) &&
                                to.bytes.back() <= std::byte{1};
  return !is_local_to_host && (to.is_link_local() || !from.is_link_local());
}

driver::Gid gid_of(const void* bytes) {
  driver::Gid gid;
  std::memcpy(gid.bytes.data(), bytes, gid.bytes.size());
  return gid;
}

}  // namespace

AddressVector address_vector(const ib_uverbs_qp_dest& dest) {
  return {.destination = gid_of(dest.dgid),
          .is_global = dest.is_global != 0,
          .source = dest.sgid_index,
          .port = dest.port_num,
          .static_rate = dest.static_rate,
          .hop_limit = dest.hop_limit};
}

AddressVector address_vector(const ib_uverbs_ah_attr& attr) {
  return {.destination = gid_of(attr.grh.dgid),
          .is_global = attr.is_global != 0,
          .source = attr.grh.sgid_index,
          .port = attr.port_num,
          .static_rate = attr.static_rate,
          .hop_limit = attr.grh.hop_limit};
}

Errno check_source(const Device& device, const AddressVector& to) {
  if (!to.is_global) return EINVAL;
  return device.gid(to.source) == nullptr ? ENODATA : 0;
}

Errno find_route(const Device& device, const AddressVector& to, Route& route) {
  constexpr std::uint32_t kBroadcast = 0xffffffff;
  const auto& source = *device.gid(to.source);
  const auto& destination = to.destination;
  route.hop_limit = to.hop_limit;
  if (destination.is_multicast()) return device.find_mac(destination, route.mac) ? 0 : EINVAL;
  if (has_link_local_prefix(destination) && !source.roce_v2) {
    route.mac = mac_of_link_local(destination);
    return 0;
  }
  route.hop_limit = kHopLimit;
  if (source.gid.is_ipv4() != destination.is_ipv4()) return EINVAL;
  if (!destination.is_ipv4() && !has_ipv6_route(source.gid, destination)) return ENETUNREACH;
  if (is_ipv4(destination, 0)) return ENODEV;
  if (is_ipv4(destination, kBroadcast)) {
    route.mac.bytes.fill(std::byte{0xff});
    return 0;
  }
  return device.resolve_mac(destination, route.mac) ? 0 : ETIMEDOUT;
}

bool is_rate(std::uint8_t rate) { return rate == 0 || (rate >= kRateMin && rate <= kRateMax); }

std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t qpn, std::uint32_t peer) {
  constexpr std::uint32_t kFirst = softhca::spec::infiniband::kUdpSourcePort, kLow = 0x3fff,
                          kLabel = 0xfffff;
  constexpr unsigned kLogLow = 14;
  flow_label &= kLabel;
  if (flow_label == 0) {
    auto mixed = std::uint64_t{qpn} * peer;
    mixed ^= mixed >> 20;  // no format: a hash
    mixed ^= mixed >> 40;  // no format: a hash
    flow_label = static_cast<std::uint32_t>(mixed & kLabel);
  }
  return static_cast<std::uint16_t>(kFirst | ((flow_label & kLow) ^ (flow_label >> kLogLow)));
}

}  // namespace softhca::uverbs
