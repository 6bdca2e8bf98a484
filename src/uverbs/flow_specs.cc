#include "uverbs/flow_specs.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "spec/infiniband/constants.h"
#include "util/endian.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using L2ToL4 = spec::fte_match_set_lyr_2_4;
using Misc = spec::fte_match_set_misc;
using Bytes = std::span<const std::byte>;

namespace {

/// ib_flow_spec_type.
enum Type : std::uint32_t {
  kEthernet = 0x20,
  kIpv4 = 0x30,
  kIpv6 = 0x31,
  kEsp = 0x34,
  kTcp = 0x40,
  kUdp = 0x41,
  kVxlan = 0x50,
  kGre = 0x51,
  kMpls = 0x60,
  kInner = 0x100,
  kActions = 0x1000,
  kTag = 0x1000,
  kDrop = 0x1001,
  kCount = 0x1003,
};
constexpr std::uint8_t kProtocolTcp = 6, kProtocolUdp = 17, kProtocolGre = 47;

std::uint16_t be16(std::uint16_t value) { return __builtin_bswap16(value); }
std::uint32_t be32(std::uint32_t value) { return __builtin_bswap32(value); }

/// The parts of a VLAN tag's TCI, and of a type of service.
struct Tci {
  std::uint32_t priority, cfi, id;
  explicit Tci(std::uint16_t tci) : priority(tci / 8192u), cfi(tci / 4096u % 2), id(tci % 4096u) {}
};
struct Tos {
  std::uint32_t dscp, ecn;
  explicit Tos(std::uint8_t tos) : dscp(softhca::spec::infiniband::dscp_of(tos)), ecn(tos % 4u) {}
};

/// Writes a specification into the mask and the value of a match, which have the same layout.
class Sides {
 public:
  Sides(FlowMatch& match, bool inner) : mask_(match.mask), value_(match.value), inner_(inner) {}
  template <class Field>
  void set(Field field, std::uint32_t mask, std::uint32_t value) const {
    headers(mask_).set(field, mask);
    headers(value_).set(field, value & mask);
  }
  template <class Field>
  void copy(Field field, std::size_t skip, Bytes mask, Bytes value) const {
    for (std::size_t i = 0; i != mask.size(); ++i) {
      headers(mask_).sub(field)[skip + i] = mask[i];
      headers(value_).sub(field)[skip + i] = value[i] & mask[i];
    }
  }
  template <class Field>
  void set_misc(Field field, std::uint32_t mask, std::uint32_t value) const {
    misc(mask_).set(field, mask);
    misc(value_).set(field, value & mask);
  }
  /// EINVAL: an earlier specification asks for another protocol.
  Errno set_protocol(std::uint8_t mask, std::uint8_t value) const {
    if (mask == 0) return 0;
    const auto had = headers(mask_).get(L2ToL4::ip_protocol);
    const auto had_value = headers(value_).get(L2ToL4::ip_protocol);
    if (had != 0) return had == mask && had_value == (value & mask) ? 0 : EINVAL;
    set(L2ToL4::ip_protocol, mask, value);
    return 0;
  }

 private:
  using Match = spec::fte_match_param;
  util::MutableView<L2ToL4> headers(FlowMatch::Fields& fields) const {
    const util::MutableView<Match> all(fields);
    return inner_ ? all.sub(Match::inner_headers) : all.sub(Match::outer_headers);
  }
  static util::MutableView<Misc> misc(FlowMatch::Fields& fields) {
    return util::MutableView<Match>(fields).sub(Match::misc_parameters);
  }
  FlowMatch::Fields& mask_;
  FlowMatch::Fields& value_;
  bool inner_;
};

template <class Filter>
struct Filters {
  explicit Filters(const FlowSpec& spec) {
    std::memcpy(&value, spec.value.data(), std::min(sizeof value, spec.value.size()));
    std::memcpy(&mask, spec.mask.data(), std::min(sizeof mask, spec.mask.size()));
  }
  Filter value{}, mask{};
};

Bytes bytes_of(const auto& array) { return std::as_bytes(std::span(array)); }

void apply_ethernet(const FlowSpec& spec, const Sides& to) {
  const Filters<ib_uverbs_flow_eth_filter> in(spec);
  to.copy(L2ToL4::dmac, 0, bytes_of(in.mask.dst_mac), bytes_of(in.value.dst_mac));
  to.copy(L2ToL4::smac, 0, bytes_of(in.mask.src_mac), bytes_of(in.value.src_mac));
  to.set(L2ToL4::ethertype, be16(in.mask.ether_type), be16(in.value.ether_type));
  if (in.mask.vlan_tag == 0) return;
  const Tci mask(be16(in.mask.vlan_tag)), value(be16(in.value.vlan_tag));
  to.set(L2ToL4::cvlan_tag, 1, 1);
  to.set(L2ToL4::first_vid, mask.id, value.id);
  to.set(L2ToL4::first_cfi, mask.cfi, value.cfi);
  to.set(L2ToL4::first_prio, mask.priority, value.priority);
}

void set_tos(const Sides& to, std::uint8_t mask, std::uint8_t value) {
  to.set(L2ToL4::ip_dscp, Tos(mask).dscp, Tos(value).dscp);
  to.set(L2ToL4::ip_ecn, Tos(mask).ecn, Tos(value).ecn);
}

Errno apply_ipv4(const FlowSpec& spec, const Sides& to) {
  constexpr std::size_t kLast4 = 12;  // of 16 bytes
  const Filters<ib_uverbs_flow_ipv4_filter> in(spec);
  if (in.mask.ttl != 0 || in.mask.flags != 0) return EOPNOTSUPP;
  to.set(L2ToL4::ip_version, 0xf, 4);
  to.copy(L2ToL4::src_ipv4_src_ipv6, kLast4, std::as_bytes(std::span(&in.mask.src_ip, 1)),
          std::as_bytes(std::span(&in.value.src_ip, 1)));
  to.copy(L2ToL4::dst_ipv4_dst_ipv6, kLast4, std::as_bytes(std::span(&in.mask.dst_ip, 1)),
          std::as_bytes(std::span(&in.value.dst_ip, 1)));
  set_tos(to, in.mask.tos, in.value.tos);
  return to.set_protocol(in.mask.proto, in.value.proto);
}

Errno apply_ipv6(const FlowSpec& spec, const Sides& to) {
  const Filters<ib_uverbs_flow_ipv6_filter> in(spec);
  if (in.mask.hop_limit != 0) return EOPNOTSUPP;
  to.set(L2ToL4::ip_version, 0xf, 6);
  to.copy(L2ToL4::src_ipv4_src_ipv6, 0, bytes_of(in.mask.src_ip), bytes_of(in.value.src_ip));
  to.copy(L2ToL4::dst_ipv4_dst_ipv6, 0, bytes_of(in.mask.dst_ip), bytes_of(in.value.dst_ip));
  set_tos(to, in.mask.traffic_class, in.value.traffic_class);
  if (const auto wrong = to.set_protocol(in.mask.next_hdr, in.value.next_hdr); wrong != 0) {
    return wrong;
  }
  const auto mask = be32(in.mask.flow_label), value = be32(in.value.flow_label);
  if ((spec.type & kInner) != 0) {
    to.set_misc(Misc::inner_ipv6_flow_label, mask, value);
  } else {
    to.set_misc(Misc::outer_ipv6_flow_label, mask, value);
  }
  return 0;
}

Errno apply_ports(const FlowSpec& spec, const Sides& to, bool tcp) {
  const Filters<ib_uverbs_flow_tcp_udp_filter> in(spec);
  const auto protocol = tcp ? kProtocolTcp : kProtocolUdp;
  if (const auto wrong = to.set_protocol(0xff, protocol); wrong != 0) return wrong;
  const auto set = [&](auto source, auto destination) {
    to.set(source, be16(in.mask.src_port), be16(in.value.src_port));
    to.set(destination, be16(in.mask.dst_port), be16(in.value.dst_port));
  };
  if (tcp) {
    set(L2ToL4::tcp_sport, L2ToL4::tcp_dport);
  } else {
    set(L2ToL4::udp_sport, L2ToL4::udp_dport);
  }
  return 0;
}

/// The device compares no tunnel fields and refuses their masks.
Errno apply_tunnel(const FlowSpec& spec, const Sides& to) {
  switch (spec.type & ~kInner) {
    case kEsp:
      return EOPNOTSUPP;
    case kVxlan: {
      const Filters<ib_uverbs_flow_tunnel_filter> in(spec);
      to.set_misc(Misc::vxlan_vni, be32(in.mask.tunnel_id), be32(in.value.tunnel_id));
      return 0;
    }
    case kGre: {
      const Filters<ib_uverbs_flow_gre_filter> in(spec);
      if (in.mask.c_ks_res0_ver != 0) return EOPNOTSUPP;
      to.set_misc(Misc::gre_protocol, be16(in.mask.protocol), be16(in.value.protocol));
      to.set_misc(Misc::gre_key, be32(in.mask.key), be32(in.value.key));
      return to.set_protocol(0xff, kProtocolGre);
    }
    default:  // MPLS: a ConnectX-4 has no such field
      return Filters<ib_uverbs_flow_mpls_filter>(spec).mask.label != 0 ? EOPNOTSUPP : 0;
  }
}

/// The work of mlx5_ib's parse_flow_attr.
Errno apply(const FlowSpec& spec, FlowRule& rule, std::optional<std::uint32_t>& counters) {
  const Sides to(rule.match, spec.type < kActions && (spec.type & kInner) != 0);
  std::uint32_t number = 0;
  switch (spec.type) {
    case kTag:
      std::memcpy(&number, spec.value.data(), sizeof number);
      if (number > kTagMax) return EINVAL;
      rule.tag = number;
      return 0;
    case kDrop:
      rule.drops = true;
      return 0;
    case kCount:
      if (counters) return EINVAL;
      std::memcpy(&number, spec.value.data(), sizeof number);
      counters = number;
      return 0;
    default:
      break;
  }
  switch (spec.type & ~kInner) {
    case kEthernet:
      apply_ethernet(spec, to);
      return 0;
    case kIpv4:
      return apply_ipv4(spec, to);
    case kIpv6:
      return apply_ipv6(spec, to);
    case kTcp:
    case kUdp:
      return apply_ports(spec, to, (spec.type & ~kInner) == kTcp);
    default:
      return apply_tunnel(spec, to);
  }
}

/// Bytes of a filter's value, and as many of its mask, that the kernel knows. 0: no such filter.
std::size_t filter_size(std::uint32_t type) {
  switch (type & ~kInner) {
    case kEthernet:
      return sizeof(ib_uverbs_flow_eth_filter);
    case kIpv4:
      return sizeof(ib_uverbs_flow_ipv4_filter);
    case kIpv6:
      return sizeof(ib_uverbs_flow_ipv6_filter);
    case kEsp:
      return sizeof(ib_uverbs_flow_spec_esp_filter);
    case kTcp:
    case kUdp:
      return sizeof(ib_uverbs_flow_tcp_udp_filter);
    case kVxlan:
      return type == kVxlan ? sizeof(ib_uverbs_flow_tunnel_filter) : 0;
    case kGre:
      return sizeof(ib_uverbs_flow_gre_filter);
    case kMpls:
      return sizeof(ib_uverbs_flow_mpls_filter);
    default:
      return 0;
  }
}

/// The work of ib_uverbs' kern_spec_to_ib_spec_action.
Errno read_action(std::uint32_t type, Bytes body, FlowSpec& spec) {
  constexpr std::uint32_t kHandle = 0x1002;
  if (type == kHandle) return ENOENT;  // the device has no such actions
  if (type != kTag && type != kDrop && type != kCount) return EINVAL;
  const std::size_t size = type == kDrop ? 0 : 2 * sizeof(std::uint32_t);
  spec = {.type = type, .value = body, .mask = {}};
  return body.size() == size ? 0 : EINVAL;
}

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{0}; });
}

/// The work of ib_uverbs_kern_spec_to_ib_spec_filter.
Errno read_filter(std::uint32_t type, Bytes body, FlowSpec& spec) {
  constexpr std::size_t kUnit = 4;
  const auto size = body.size() / 2;
  const auto known = std::min(size, filter_size(type));
  if (size % kUnit != 0 || known == 0) return EINVAL;
  if (!is_zero(body.subspan(size + known, size - known))) return EINVAL;
  spec = {.type = type, .value = body.first(known), .mask = body.subspan(size, known)};
  const auto fits = [](std::uint32_t mask, std::uint32_t value, unsigned bits) {
    return be32(mask) >> bits == 0 && be32(value) >> bits == 0;
  };
  if ((type & ~kInner) == kIpv6) {
    const Filters<ib_uverbs_flow_ipv6_filter> in(spec);
    return fits(in.mask.flow_label, in.value.flow_label, 20) ? 0 : EINVAL;
  }
  if (type == kVxlan) {
    const Filters<ib_uverbs_flow_tunnel_filter> in(spec);
    return fits(in.mask.tunnel_id, in.value.tunnel_id, 24) ? 0 : EINVAL;
  }
  return 0;
}

/// is_valid_ethertype: an EtherType that is compared must agree with the IP version of the
/// addresses that are compared.
bool ethertype_fits(std::span<const FlowSpec> specs, std::uint32_t inner) {
  enum : std::uint16_t { kOfIpv4 = 0x0800, kOfIpv6 = 0x86dd, kOfMpls = 0x8847, kOfMplsGroup };
  std::uint32_t ip = 0;
  std::uint16_t mask = 0, type = 0;
  for (const auto& spec : specs) {
    if (spec.type == (kEthernet | inner)) {
      const Filters<ib_uverbs_flow_eth_filter> in(spec);
      if (in.mask.ether_type == 0) continue;
      mask = be16(in.mask.ether_type);
      type = be16(in.value.ether_type);
    } else if (spec.type == (kIpv4 | inner) || spec.type == (kIpv6 | inner)) {
      ip = spec.type & ~kInner;
    }
  }
  if (mask == 0 || ip == 0) return true;
  if (mask != 0xffff) return false;
  const bool is_mpls = type == kOfMpls || type == kOfMplsGroup;
  return type == (ip == kIpv4 ? kOfIpv4 : kOfIpv6) || (is_mpls && inner == 0);
}

/// get_match_criteria_enable: the parts of the match with a nonzero mask.
std::uint8_t criteria_of(const FlowMatch::Fields& mask) {
  constexpr std::size_t kPart = spec::fte_match_set_lyr_2_4::kSize, kParts = 4;
  std::uint8_t criteria = 0;
  for (std::size_t i = 0; i != kParts; ++i) {
    if (!is_zero(std::span(mask).subspan(i * kPart, kPart))) {
      criteria |= static_cast<std::uint8_t>(1u << i);
    }
  }
  return criteria;
}

}  // namespace

void match_group_bit(FlowMatch& match, bool is_group) {
  constexpr std::array kMask{std::byte{1}};
  const std::array value{std::byte{is_group}};
  Sides(match, false).copy(L2ToL4::dmac, 0, kMask, value);
  match.criteria = criteria_of(match.mask);
}

bool is_for_groups(std::span<const FlowSpec> specs) {
  if (specs.empty()) return false;
  const auto& first = specs.front();
  if (first.type == kIpv4) {
    const Filters<ib_uverbs_flow_ipv4_filter> in(first);
    return is_group_address(std::as_bytes(std::span(&in.value.dst_ip, 1)));
  }
  if (first.type != kEthernet) return false;
  const Filters<ib_uverbs_flow_eth_filter> in(first);
  return has_group_bit(bytes_of(in.mask.dst_mac)) && has_group_bit(bytes_of(in.value.dst_mac));
}

Errno read_flow_specs(Bytes bytes, unsigned count, std::vector<FlowSpec>& specs) {
  struct Header {
    std::uint32_t type;
    std::uint16_t size;
    std::uint16_t reserved;
  };
  specs.resize(count);
  for (auto& spec : specs) {
    Header header;
    if (bytes.size() < sizeof header) return EINVAL;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.size < sizeof header || header.size > bytes.size() || header.reserved != 0) {
      return EINVAL;
    }
    const auto body = bytes.first(header.size).subspan(sizeof header);
    const auto wrong = header.type >= kActions ? read_action(header.type, body, spec)
                                               : read_filter(header.type, body, spec);
    if (wrong != 0) return wrong;
    bytes = bytes.subspan(header.size);
  }
  return bytes.empty() ? 0 : EINVAL;
}

Errno apply_flow_specs(std::span<const FlowSpec> specs, FlowRule& rule,
                       std::optional<std::uint32_t>& counters) {
  if (!ethertype_fits(specs, 0) || !ethertype_fits(specs, kInner)) return EINVAL;
  for (const auto& spec : specs) {
    if (const auto wrong = apply(spec, rule, counters); wrong != 0) return wrong;
  }
  rule.match.criteria = criteria_of(rule.match.mask);
  return 0;
}

}  // namespace softhca::uverbs
