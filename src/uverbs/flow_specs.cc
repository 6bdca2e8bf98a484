#include "uverbs/flow_specs.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "util/endian.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using L2ToL4 = spec::fte_match_set_lyr_2_4;
using Bytes = std::span<const std::byte>;

namespace {

/// ib_flow_spec_type.
enum Type : std::uint32_t {
  kEthernet = 0x20,
  kIpv4 = 0x30,
  kIpv6 = 0x31,
  kTcp = 0x40,
  kUdp = 0x41,
  kTag = 0x1000,
  kDrop = 0x1001,
  kCount = 0x1003,
};
constexpr std::uint32_t kIpProtocolTcp = 6, kIpProtocolUdp = 17;
constexpr std::uint32_t kTagMax = 0xffffff;
/// Parts of a frame, as match_criteria_enable has them.
constexpr std::uint8_t kOuter = 1u
                                << static_cast<unsigned>(spec::match_criteria_bit::OUTER_HEADERS);
constexpr std::uint8_t kMisc =
    1u << static_cast<unsigned>(spec::match_criteria_bit::MISC_PARAMETERS);

std::uint16_t be16(std::uint16_t value) { return __builtin_bswap16(value); }

/// TCI of a VLAN tag and its parts; the type of service and its parts.
struct Tci {
  std::uint32_t priority, cfi, id;
  explicit Tci(std::uint16_t tci) : priority(tci / 8192u), cfi(tci / 4096u % 2), id(tci % 4096u) {}
};
struct Tos {
  std::uint32_t dscp, ecn;
  explicit Tos(std::uint8_t tos) : dscp(tos / 4u), ecn(tos % 4u) {}
};

/// Where a specification goes: the mask and the value are laid out alike.
class Sides {
 public:
  explicit Sides(FlowMatch& match) : mask_(match.mask), value_(match.value) {}
  template <class Field>
  void set(Field field, std::uint32_t mask, std::uint32_t value) const {
    if (mask == 0) return;
    outer(mask_).set(field, mask);
    outer(value_).set(field, value & mask);
  }
  template <class Field>
  void copy(Field field, std::size_t skip, Bytes mask, Bytes value) const {
    for (std::size_t i = 0; i != mask.size(); ++i) {
      outer(mask_).sub(field)[skip + i] = mask[i];
      outer(value_).sub(field)[skip + i] = value[i] & mask[i];
    }
  }
  void set_flow_label(std::uint32_t mask, std::uint32_t value) const {
    using Misc = spec::fte_match_set_misc;
    const auto misc = [](FlowMatch::Fields& fields) {
      return util::MutableView<spec::fte_match_param>(fields).sub(
          spec::fte_match_param::misc_parameters);
    };
    misc(mask_).set(Misc::outer_ipv6_flow_label, mask);
    misc(value_).set(Misc::outer_ipv6_flow_label, value & mask);
  }

 private:
  static util::MutableView<L2ToL4> outer(FlowMatch::Fields& fields) {
    return util::MutableView<spec::fte_match_param>(fields).sub(
        spec::fte_match_param::outer_headers);
  }
  FlowMatch::Fields& mask_;
  FlowMatch::Fields& value_;
};

template <class Filter>
struct Filters {
  Filter value{}, mask{};
};
/// False: it is not as long as it must be.
template <class Filter>
bool read(Bytes bytes, Filters<Filter>& out) {
  if (bytes.size() != sizeof out) return false;
  std::memcpy(&out, bytes.data(), sizeof out);
  return true;
}

Bytes bytes_of(const auto& array) { return std::as_bytes(std::span(array)); }

Errno read_ethernet(Bytes bytes, const Sides& to) {
  Filters<ib_uverbs_flow_eth_filter> in;
  if (!read(bytes, in)) return EINVAL;
  to.copy(L2ToL4::dmac, 0, bytes_of(in.mask.dst_mac), bytes_of(in.value.dst_mac));
  to.copy(L2ToL4::smac, 0, bytes_of(in.mask.src_mac), bytes_of(in.value.src_mac));
  to.set(L2ToL4::ethertype, be16(in.mask.ether_type), be16(in.value.ether_type));
  if (in.mask.vlan_tag == 0) return 0;
  const Tci mask(be16(in.mask.vlan_tag)), value(be16(in.value.vlan_tag));
  to.set(L2ToL4::cvlan_tag, 1, 1);
  to.set(L2ToL4::first_vid, mask.id, value.id);
  to.set(L2ToL4::first_cfi, mask.cfi, value.cfi);
  to.set(L2ToL4::first_prio, mask.priority, value.priority);
  return 0;
}

void set_tos(const Sides& to, std::uint8_t mask, std::uint8_t value) {
  to.set(L2ToL4::ip_dscp, Tos(mask).dscp, Tos(value).dscp);
  to.set(L2ToL4::ip_ecn, Tos(mask).ecn, Tos(value).ecn);
}

Errno read_ipv4(Bytes bytes, const Sides& to) {
  constexpr std::size_t kLast4 = 12;  // of 16 bytes
  Filters<ib_uverbs_flow_ipv4_filter> in;
  if (!read(bytes, in)) return EINVAL;
  if (in.mask.ttl != 0 || in.mask.flags != 0) return EOPNOTSUPP;
  to.set(L2ToL4::ip_version, 0xf, 4);
  to.copy(L2ToL4::src_ipv4_src_ipv6, kLast4, std::as_bytes(std::span(&in.mask.src_ip, 1)),
          std::as_bytes(std::span(&in.value.src_ip, 1)));
  to.copy(L2ToL4::dst_ipv4_dst_ipv6, kLast4, std::as_bytes(std::span(&in.mask.dst_ip, 1)),
          std::as_bytes(std::span(&in.value.dst_ip, 1)));
  to.set(L2ToL4::ip_protocol, in.mask.proto, in.value.proto);
  set_tos(to, in.mask.tos, in.value.tos);
  return 0;
}

Errno read_ipv6(Bytes bytes, const Sides& to, FlowMatch& match) {
  constexpr std::uint32_t kFlowLabelMax = 0xfffff;
  Filters<ib_uverbs_flow_ipv6_filter> in;
  if (!read(bytes, in)) return EINVAL;
  if (in.mask.hop_limit != 0) return EOPNOTSUPP;
  to.set(L2ToL4::ip_version, 0xf, 6);
  to.copy(L2ToL4::src_ipv4_src_ipv6, 0, bytes_of(in.mask.src_ip), bytes_of(in.value.src_ip));
  to.copy(L2ToL4::dst_ipv4_dst_ipv6, 0, bytes_of(in.mask.dst_ip), bytes_of(in.value.dst_ip));
  to.set(L2ToL4::ip_protocol, in.mask.next_hdr, in.value.next_hdr);
  set_tos(to, in.mask.traffic_class, in.value.traffic_class);
  const auto label = __builtin_bswap32(in.mask.flow_label);
  if (label > kFlowLabelMax) return EINVAL;
  if (label == 0) return 0;
  to.set_flow_label(label, __builtin_bswap32(in.value.flow_label) % (kFlowLabelMax + 1));
  match.criteria |= kMisc;
  return 0;
}

Errno read_ports(Bytes bytes, const Sides& to, bool tcp) {
  Filters<ib_uverbs_flow_tcp_udp_filter> in;
  if (!read(bytes, in)) return EINVAL;
  to.set(L2ToL4::ip_protocol, 0xff, tcp ? kIpProtocolTcp : kIpProtocolUdp);
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

Errno read_tag(Bytes bytes, FlowRule& rule) {
  std::uint32_t tag = 0;
  if (bytes.size() != 2 * sizeof tag) return EINVAL;
  std::memcpy(&tag, bytes.data(), sizeof tag);
  if (tag > kTagMax) return EINVAL;
  rule.tag = tag;
  return 0;
}

/// The handle of the counters.
Errno read_count(Bytes bytes, std::optional<std::uint32_t>& counters) {
  std::uint32_t handle = 0;
  if (bytes.size() != 2 * sizeof handle || counters) return EINVAL;
  std::memcpy(&handle, bytes.data(), sizeof handle);
  counters = handle;
  return 0;
}

Errno read_one(std::uint32_t type, Bytes bytes, FlowRule& rule,
               std::optional<std::uint32_t>& counters) {
  const Sides to(rule.match);
  switch (type) {
    case kEthernet:
      return read_ethernet(bytes, to);
    case kIpv4:
      return read_ipv4(bytes, to);
    case kIpv6:
      return read_ipv6(bytes, to, rule.match);
    case kTcp:
    case kUdp:
      return read_ports(bytes, to, type == kTcp);
    case kTag:
      return read_tag(bytes, rule);
    case kDrop:
      rule.drops = true;
      return bytes.empty() ? 0 : EINVAL;
    case kCount:
      return read_count(bytes, counters);
    default:
      return EOPNOTSUPP;
  }
}

}  // namespace

void match_multicast(FlowMatch& match) {
  constexpr std::array kGroupBit{std::byte{1}};
  Sides(match).copy(L2ToL4::dmac, 0, kGroupBit, kGroupBit);
  match.criteria |= kOuter;
}

Errno read_flow_specs(Bytes bytes, unsigned count, FlowRule& rule,
                      std::optional<std::uint32_t>& counters) {
  struct Header {
    std::uint32_t type;
    std::uint16_t size;
    std::uint16_t reserved;
  };
  if (count != 0) rule.match.criteria |= kOuter;
  for (; count != 0; --count) {
    Header header;
    if (bytes.size() < sizeof header) return EINVAL;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.size < sizeof header || header.size > bytes.size() || header.reserved != 0) {
      return EINVAL;
    }
    const auto body = bytes.first(header.size).subspan(sizeof header);
    if (const auto wrong = read_one(header.type, body, rule, counters); wrong != 0) return wrong;
    bytes = bytes.subspan(header.size);
  }
  return bytes.empty() ? 0 : EINVAL;
}

}  // namespace softhca::uverbs
