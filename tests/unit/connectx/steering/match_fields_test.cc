// The fields that flows can match are one list: ft_field_support reports it, flow groups are
// checked against it, and each of its fields is extracted from packets (PRM 7.11.2.1, Tables 153,
// 410 and 416).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "connectx/function/capabilities.h"
#include "connectx/steering/flow_match.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Outer = s::fte_match_set_lyr_2_4;
using Misc = s::fte_match_set_misc;
using SupportedFields = s::flow_table_fields_supported;
using ethernet::L3Type;
using ethernet::L4Type;

std::uint32_t bits_of(std::span<const std::byte> structure, const util::FieldInfo& field) {
  const auto width = static_cast<unsigned>(field.hi - field.lo + 1);
  const auto word = util::load_be32(structure.data() + field.offset) >> field.lo;
  return width == 32 ? word : word & ((1u << width) - 1);
}

/// The capability for a field of fte_match_set_lyr_2_4 or fte_match_set_misc.
std::string capability_of(std::string_view field) {
  static const std::map<std::string_view, std::string> kOtherNames{
      {"ethertype", "outer_ether_type"},
      {"ttl_hoplimit", "outer_ipv4_ttl"},
      {"cvlan_tag", "outer_first_vid"},
      {"svlan_tag", "outer_first_vid"},
      {"outer_second_cvlan_tag", "outer_second_vid"},
      {"outer_second_svlan_tag", "outer_second_vid"}};
  if (const auto other = kOtherNames.find(field); other != kOtherNames.end()) return other->second;
  const bool is_misc = std::ranges::any_of(Misc::kFields, [&](auto& f) { return f.name == field; });
  return is_misc ? std::string(field) : "outer_" + std::string(field);
}

class MatchFields : public ::testing::Test {
 protected:
  /// True if ft_field_support `support` has the bit of `capability`.
  static bool tells(std::span<const std::byte> support, const std::string& capability) {
    for (const auto& field : SupportedFields::kFields) {
      if (field.name == capability) return bits_of(support, field) != 0;
    }
    return false;
  }
  template <class Visit>
  void for_each_number(Visit&& visit) {
    for (const auto& field : Outer::kFields) visit(field, 0);
    for (const auto& field : Misc::kFields)
      visit(field, s::fte_match_param::misc_parameters.kOffset);
  }

  Capabilities capabilities_{Limits{}};
  util::View<s::flow_table_properties> properties_{
      util::View<s::flow_table_nic_cap>(capabilities_.maximum(s::hca_cap_type::FLOW_TABLE_NIC))
          .get(s::flow_table_nic_cap::flow_table_properties_nic_receive)
          .bytes()};
  std::span<const std::byte> whole_ =
      properties_.get(s::flow_table_properties::ft_field_support).bytes();
  std::span<const std::byte> masked_ =
      properties_.get(s::flow_table_properties::ft_field_bitmask_support).bytes();
  MatchKey matchable_ = matchable_fields();
};

TEST_F(MatchFields, AreReportedAndTakenAlike) {
  for_each_number([&](const util::FieldInfo& field, std::size_t offset) {
    const auto taken = bits_of(matchable_.bytes().subspan(offset), field) != 0;
    const auto capability = capability_of(field.name);
    EXPECT_EQ(taken, tells(whole_, capability)) << field.name;
    EXPECT_EQ(taken, tells(masked_, capability)) << field.name;
  });
  const auto outer = matchable_.outer();
  const auto expect_bytes = [&](auto field, const std::string& capability) {
    const auto bytes = outer.sub(field);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](auto byte) { return byte == std::byte{0xFF}; }));
    EXPECT_TRUE(tells(whole_, capability)) << capability;
    EXPECT_TRUE(tells(masked_, capability)) << capability;
  };
  expect_bytes(Outer::dmac, "outer_dmac");
  expect_bytes(Outer::smac, "outer_smac");
  expect_bytes(Outer::src_ipv4_src_ipv6, "outer_sip");
  expect_bytes(Outer::dst_ipv4_dst_ipv6, "outer_dip");
}

/// A packet in which every field is nonzero.
ethernet::PacketInfo full_packet(L4Type l4, wire::EtherType tag) {
  ethernet::PacketInfo packet;
  packet.destination_mac = packet.source_mac = wire::MacAddress::broadcast();
  packet.tag = packet.inner_tag = ethernet::PacketInfo::Tag{tag, 0xFFFF};
  packet.ether_type = wire::EtherType::kIpv6;
  packet.l3 = L3Type::kIpv6;
  packet.ip.source.bytes.fill(std::byte{0xFF});
  packet.ip.destination = packet.ip.source;
  packet.ip.traffic_class = {0xFF};
  packet.ip.hop_limit = 0xFF;
  packet.ip.flow_label = 0xFFFFF;
  packet.ip.protocol = wire::IpProtocol::kTcp;
  packet.ip.fragment = true;
  packet.l4 = l4;
  packet.source_port = packet.destination_port = 0xFFFF;
  packet.tcp_flags = 0x1FF;
  return packet;
}

TEST_F(MatchFields, EachFieldOfAPacketIsMatchableAndNoOther) {
  const auto tcp = match_key_of(full_packet(L4Type::kTcp, wire::EtherType::kVlan));
  const auto udp = match_key_of(full_packet(L4Type::kUdp, wire::EtherType::kServiceVlan));
  EXPECT_TRUE(tcp.within(matchable_));
  EXPECT_TRUE(udp.within(matchable_));
  for_each_number([&](const util::FieldInfo& field, std::size_t offset) {
    if (bits_of(matchable_.bytes().subspan(offset), field) == 0) return;
    const auto in_tcp = bits_of(tcp.bytes().subspan(offset), field);
    const auto in_udp = bits_of(udp.bytes().subspan(offset), field);
    EXPECT_NE(in_tcp | in_udp, 0u) << field.name;
  });
}

}  // namespace
}  // namespace softhca::connectx
