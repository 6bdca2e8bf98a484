// Neighbor Solicitation and Advertisement.
#include "wire/neighbor_discovery.h"

#include <gtest/gtest.h>

#include <array>

namespace softhca::wire {
namespace {

Gid gid(std::uint64_t high, std::uint64_t low) {
  Gid gid;
  util::store_be64(gid.bytes.data(), high);
  util::store_be64(gid.bytes.data() + 8, low);
  return gid;
}
const Gid kOne = gid(0xfe80000000000000, 0x005fcbfffe000001);
const Gid kTwo = gid(0xfe80000000000000, 0x005fcbfffe000002);

// RFC 4291 2.7.1: "4037::01:800:200e:8c6c" is in "FF02::1:FF0E:8C6C".
TEST(NeighborDiscovery, TheGroupOfAnAddressHasItsLast24Bits) {
  const auto group = Neighbor::solicited_node(gid(0x4037000000000000, 0x00010800200e8c6c));
  EXPECT_EQ(group, gid(0xff02000000000000, 0x00000001ff0e8c6c));
  EXPECT_EQ(Neighbor::group_mac(group), MacAddress::from_u64(0x3333ff0e8c6c));
}

TEST(NeighborDiscovery, ASolicitationStandsAsTheDocumentDrawsIt) {
  std::array<std::byte, NeighborLayout::kSize> bytes{};
  Neighbor{
      .type = Neighbor::kSolicitation, .target = kTwo, .mac = MacAddress::from_u64(0x025fcb000001)}
      .emit(util::MutableView<NeighborLayout>(bytes), kOne, Neighbor::solicited_node(kTwo));
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 135);
  EXPECT_EQ(util::load_be32(bytes.data() + 4), 0u) << "reserved";
  EXPECT_EQ(Gid::from(std::span(bytes).subspan<8, 16>()), kTwo);
  // RFC 4861 4.6.1: source link-layer address, one unit of 8 bytes.
  EXPECT_EQ(util::load_be64(bytes.data() + 24), 0x0101025fcb000001u);
  EXPECT_EQ(Neighbor::checksum(bytes, kOne, Neighbor::solicited_node(kTwo)), 0);
  EXPECT_NE(Neighbor::checksum(bytes, kTwo, Neighbor::solicited_node(kTwo)), 0);
}

TEST(NeighborDiscovery, AWrittenMessageIsRead) {
  std::array<std::byte, NeighborLayout::kSize> bytes{};
  const Neighbor message{.type = Neighbor::kAdvertisement,
                         .solicited = true,
                         .target = kOne,
                         .mac = MacAddress::from_u64(0x025fcb000001)};
  message.emit(util::MutableView<NeighborLayout>(bytes), kOne, kTwo);
  EXPECT_EQ(util::load_be32(bytes.data() + 4), 0x60000000u) << "solicited, override";
  EXPECT_EQ(std::to_integer<int>(bytes[24]), 2) << "target link-layer address";
  EXPECT_EQ(Neighbor::parse(NeighborView(bytes)), message);
  bytes[24] = std::byte{1};
  EXPECT_FALSE(Neighbor::parse(NeighborView(bytes)));
  bytes[0] = std::byte{134};
  EXPECT_FALSE(Neighbor::parse(NeighborView(bytes))) << "a router's";
}

}  // namespace
}  // namespace softhca::wire
