// parse(emit(x)) == x for every header, and each bit is where the documents put it.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "hex.h"
#include "wire/aeth.h"
#include "wire/arp.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/grh.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/ipv6.h"
#include "wire/lrh.h"
#include "wire/reth.h"
#include "wire/tcp.h"
#include "wire/udp.h"
#include "wire/vlan.h"
#include "wire/xrceth.h"

namespace softhca::wire {
namespace {

class Headers : public testing::Test {
 protected:
  static constexpr int kRounds = 1000;

  template <class T = std::uint32_t>
  T random(unsigned bits = sizeof(T) * 8) {
    return static_cast<T>(engine_() >> (64 - bits));
  }
  bool coin() { return random(1) != 0; }
  Gid random_gid() {
    Gid gid;
    for (auto& byte : gid.bytes) byte = std::byte(random<std::uint8_t>());
    return gid;
  }

  /// Writes over bytes of all ones, so that a bit that emit forgets shows.
  template <class Layout, class Header>
  static Header again(const Header& header) {
    std::array<std::byte, Layout::kSize> bytes;
    bytes.fill(std::byte{0xff});
    header.emit(util::MutableView<Layout>(bytes));
    if constexpr (requires { *Header::parse(util::View<Layout>(bytes)); }) {
      return Header::parse(util::View<Layout>(bytes)).value();
    } else {
      return Header::parse(util::View<Layout>(bytes));
    }
  }

 private:
  std::mt19937_64 engine_{1};
};

template <class Header, class Layout>
std::vector<std::byte> bytes_of(const Header& header) {
  std::vector<std::byte> bytes(Layout::kSize, std::byte{0xff});
  header.emit(util::MutableView<Layout>(bytes));
  return bytes;
}

TEST_F(Headers, LinkLayerSurvivesEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    const Ethernet ethernet{MacAddress::from_u64(random<std::uint64_t>(48)),
                            MacAddress::from_u64(random<std::uint64_t>(48)),
                            EtherType(random<std::uint16_t>())};
    ASSERT_EQ(again<EthernetLayout>(ethernet), ethernet);
    const Vlan vlan{random<std::uint16_t>(), EtherType(random<std::uint16_t>())};
    ASSERT_EQ(again<VlanLayout>(vlan), vlan);
    ASSERT_EQ(vlan.vid(), vlan.tci & 0xfff);
  }
}

TEST_F(Headers, ArpSurvivesEmitAndParse) {
  const auto address = [&] {
    Arp::Ipv4Address ip;
    for (auto& byte : ip) byte = std::byte(random<std::uint8_t>());
    return ip;
  };
  for (int i = 0; i != kRounds; ++i) {
    const Arp arp{random<std::uint16_t>(), MacAddress::from_u64(random<std::uint64_t>(48)),
                  address(), MacAddress::from_u64(random<std::uint64_t>(48)), address()};
    ASSERT_EQ(again<ArpLayout>(arp), arp);
  }
}

// RFC 826 "Packet format": Ethernet is 1, IPv4 is 0x0800.
TEST_F(Headers, ArpOfAnotherNetworkIsNothing) {
  const auto good = from_hex("0001080006040001025fca000001c613000100000000000012130000");
  const auto arp = Arp::parse(ArpView(good));
  ASSERT_TRUE(arp);
  EXPECT_EQ(arp->operation, Arp::kRequest);
  EXPECT_EQ(arp->sender_mac, MacAddress::from_u64(0x025fca000001));
  EXPECT_EQ(arp->sender_ip[0], std::byte{198});
  for (const std::size_t at : {1u, 3u, 4u, 5u}) {
    auto other = good;
    other[at] ^= std::byte{2};
    EXPECT_FALSE(Arp::parse(ArpView(other))) << at;
  }
}

TEST_F(Headers, Ipv4SurvivesEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    Ipv4 ip;
    ip.tos = random<std::uint8_t>();
    ip.total_length = std::max<std::uint16_t>(random<std::uint16_t>(), 20);
    ip.identification = random<std::uint16_t>();
    ip.dont_fragment = coin();
    ip.more_fragments = coin();
    ip.fragment_offset = random<std::uint16_t>(13);
    ip.ttl = random<std::uint8_t>();
    ip.protocol = IpProtocol(random<std::uint8_t>());
    ip.source = random();
    ip.destination = random();
    ASSERT_EQ(again<Ipv4Layout>(ip), ip);
  }
}

TEST_F(Headers, Ipv6AndGrhSurviveEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    const Ipv6 ip{random<std::uint8_t>(),
                  random(20),
                  random<std::uint16_t>(),
                  IpProtocol(random<std::uint8_t>()),
                  random<std::uint8_t>(),
                  random_gid(),
                  random_gid()};
    ASSERT_EQ(again<Ipv6Layout>(ip), ip);
    const Grh grh{random<std::uint8_t>(),
                  random(20),
                  random<std::uint16_t>(),
                  random<std::uint8_t>(),
                  random<std::uint8_t>(),
                  random_gid(),
                  random_gid()};
    ASSERT_EQ(again<GrhLayout>(grh), grh);
  }
}

TEST_F(Headers, LrhSurvivesEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    const Lrh lrh{random<std::uint8_t>(4),      random<std::uint8_t>(4),
                  random<std::uint8_t>(4),      LrhNextHeader(random(2)),
                  Lid(random<std::uint16_t>()), random<std::uint16_t>(11),
                  Lid(random<std::uint16_t>())};
    ASSERT_EQ(again<LrhLayout>(lrh), lrh);
  }
}

TEST_F(Headers, UdpSurvivesEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    const Udp udp{random<std::uint16_t>(), random<std::uint16_t>(), random<std::uint16_t>(),
                  random<std::uint16_t>()};
    ASSERT_EQ(again<UdpLayout>(udp), udp);
  }
}

TEST_F(Headers, BthSurvivesEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    Bth bth;
    bth.opcode = Opcode(random<std::uint8_t>());
    bth.solicited_event = coin();
    bth.mig_req = coin();
    bth.pad_count = random<std::uint8_t>(2);
    bth.tver = random<std::uint8_t>(4);
    bth.pkey = random<std::uint16_t>();
    bth.fecn = coin();
    bth.becn = coin();
    bth.dest_qp = Qpn(random(24));
    bth.ack_req = coin();
    bth.psn = Psn(random(24));
    ASSERT_EQ(again<BthLayout>(bth), bth);
  }
}

TEST_F(Headers, ExtendedHeadersSurviveEmitAndParse) {
  for (int i = 0; i != kRounds; ++i) {
    const Deth deth{QKey(random()), Qpn(random(24))};
    ASSERT_EQ(again<DethLayout>(deth), deth);
    const Reth reth{random<std::uint64_t>(), RKey(random()), random()};
    ASSERT_EQ(again<RethLayout>(reth), reth);
    const AtomicEth atomic{random<std::uint64_t>(), RKey(random()), random<std::uint64_t>(),
                           random<std::uint64_t>()};
    ASSERT_EQ(again<AtomicEthLayout>(atomic), atomic);
    const Aeth aeth{AethType(random(2)), random<std::uint8_t>(5), Msn(random(24))};
    ASSERT_EQ(again<AethLayout>(aeth), aeth);
    const AtomicAckEth ack{random<std::uint64_t>()};
    ASSERT_EQ(again<AtomicAckEthLayout>(ack), ack);
    const ImmDt immdt{random()};
    ASSERT_EQ(again<ImmDtLayout>(immdt), immdt);
    const Ieth ieth{RKey(random())};
    ASSERT_EQ(again<IethLayout>(ieth), ieth);
    const XrcEth xrceth{XrcSrqn(random(24))};
    ASSERT_EQ(again<XrcEthLayout>(xrceth), xrceth);
  }
}

TEST_F(Headers, BitsLieWhereTheDocumentsPutThem) {
  Bth bth;
  bth.opcode = Opcode::RC_SEND_ONLY;
  bth.solicited_event = true;
  bth.pad_count = 3;
  bth.pkey = 0x1234;
  bth.becn = true;
  bth.dest_qp = Qpn(0xabcdef);
  bth.ack_req = true;
  bth.psn = Psn(0x123456);
  EXPECT_EQ((bytes_of<Bth, BthLayout>(bth)), from_hex("04b01234 40abcdef 80123456"));
  EXPECT_EQ((bytes_of<Aeth, AethLayout>(Aeth::nak(Msn(7), NakCode::REMOTE_ACCESS_ERROR))),
            from_hex("62000007"));
  EXPECT_EQ((bytes_of<Aeth, AethLayout>(Aeth::rnr_nak(Msn(7), 14))), from_hex("2e000007"));
  EXPECT_EQ((bytes_of<Aeth, AethLayout>(Aeth::ack(Msn(7)))), from_hex("1f000007"));
  EXPECT_EQ((bytes_of<Vlan, VlanLayout>({0x6064, EtherType::kIpv4})), from_hex("60640800"));
}

TEST_F(Headers, Ipv4ChecksumOfAKnownHeader) {
  // The worked example of en.wikipedia.org/wiki/Internet_checksum.
  const auto bytes = from_hex("45000073000040004011b861c0a80001c0a800c7");
  const auto ip = Ipv4::parse(Ipv4View(bytes));
  ASSERT_TRUE(ip);
  EXPECT_EQ((bytes_of<Ipv4, Ipv4Layout>(*ip)), bytes);
}

TEST_F(Headers, Ipv4RefusesWhatMakesNoSense) {
  const auto good = from_hex("45000073000040004011b861c0a80001c0a800c7");
  const auto with = [&](std::size_t at, std::uint8_t value) {
    auto bytes = good;
    bytes[at] = std::byte(value);
    // Fix the checksum, so that only the other change matters.
    bytes[10] = bytes[11] = std::byte{0};
    util::store_be16(bytes.data() + 10, checksum_of(bytes));
    return Ipv4::parse(Ipv4View(bytes)).has_value();
  };
  EXPECT_TRUE(with(1, 0x10));
  EXPECT_FALSE(with(0, 0x65)) << "version 6";
  EXPECT_FALSE(with(0, 0x46)) << "options";
  EXPECT_FALSE(with(0, 0x44)) << "IHL 4";
  EXPECT_FALSE(with(3, 19)) << "total length below the header's";
  auto bad = good;
  bad[19] ^= std::byte{1};
  EXPECT_FALSE(Ipv4::parse(Ipv4View(bad))) << "checksum";
}

TEST_F(Headers, GidKnowsTheMappedFormOfIpv4) {
  const auto gid = Gid::from_ipv4(0x0a000001);
  EXPECT_TRUE(gid.is_ipv4());
  EXPECT_EQ(gid.to_ipv4(), 0x0a000001u);
  EXPECT_FALSE(gid.is_multicast());
  EXPECT_TRUE(Gid::from_ipv4(0xe0000001).is_multicast());
  EXPECT_FALSE(Gid{}.is_ipv4());
  EXPECT_TRUE(Gid{}.is_zero());
}

TEST_F(Headers, TcpFlagsAreOneBitEach) {
  auto bytes = from_hex("0001 0002 00000003 00000004 5018 ffff 0000 0000");
  const util::MutableView<TcpLayout> tcp(bytes);
  EXPECT_EQ(tcp.get(TcpLayout::data_offset), 5u);
  EXPECT_EQ(tcp.get(TcpLayout::psh), 1u);
  EXPECT_EQ(tcp.get(TcpLayout::ack), 1u);
  EXPECT_EQ(tcp.get(TcpLayout::fin), 0u);
  tcp.set(TcpLayout::fin, 1);
  tcp.set(TcpLayout::cwr, 1);
  EXPECT_EQ(bytes[13], std::byte{0x99});
}

}  // namespace
}  // namespace softhca::wire
