// Address resolution: requests that are answered, and addresses that are learned (RFC 826).
#include "hub/neighbours.h"

#include <gtest/gtest.h>

#include <memory>

#include "fabric/recorder.h"
#include "fabric/switch.h"

namespace softhca::hub {
namespace {

using wire::Arp;
using wire::MacAddress;

wire::Gid gid_of(const Arp::Ipv4Address& address) {
  return wire::Gid::from_ipv4(util::load_be32(address.data()));
}
constexpr Arp::Ipv4Address ipv4(std::uint8_t last) {
  return {std::byte{198}, std::byte{19}, std::byte{0}, std::byte{last}};
}
wire::Gid address(std::uint8_t last) { return gid_of(ipv4(last)); }
/// 2001:db8::<last>
wire::Gid ipv6(std::uint8_t last) {
  wire::Gid gid;
  util::store_be32(gid.bytes.data(), 0x20010db8);
  gid.bytes[15] = std::byte{last};
  return gid;
}

/// A device with its neighbour table, on a switch.
struct StationWithNeighbours {
  StationWithNeighbours(fabric::Switch& network, std::uint8_t number)
      : port(network.create_port("station")), neighbours(*port, MacAddress::from_u64(number)) {
    neighbours.set_addresses({address(number), ipv6(number)});
    neighbours.set_receiver(&device);
  }
  ~StationWithNeighbours() { neighbours.set_receiver(nullptr); }

  fabric::Recorder device;
  std::unique_ptr<fabric::Port> port;
  Neighbours neighbours;
};

class NeighboursTest : public testing::Test {
 protected:
  void deliver() {
    while (network_.deliver(16)) {
    }
  }
  /// Sends `arp` as station 2.
  void say(const Arp& arp) {
    wire::Frame frame;
    const auto head = frame.resize_head(60);
    std::ranges::fill(head, std::byte{0});
    wire::Ethernet{MacAddress::broadcast(), MacAddress::from_u64(2), wire::EtherType::kArp}.emit(
        util::MutableView<wire::EthernetLayout>(head.first<14>()));
    arp.emit(util::MutableView<wire::ArpLayout>(head.subspan(14)));
    two_.port->transmit(frame);
    deliver();
  }

  fabric::Switch network_;
  StationWithNeighbours one_{network_, 1}, two_{network_, 2};
};

TEST_F(NeighboursTest, AStationAnswersARequestForItsAddress) {
  EXPECT_FALSE(one_.neighbours.find(address(2)));
  one_.neighbours.ask(address(2));
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(2));
  EXPECT_EQ(two_.neighbours.find(address(1)), MacAddress::from_u64(1)) << "it will want to answer";
  one_.neighbours.ask(address(3));
  deliver();
  EXPECT_FALSE(one_.neighbours.find(address(3)));
}

TEST_F(NeighboursTest, TheDeviceSeesEverythingElse) {
  one_.neighbours.ask(address(2));
  deliver();
  EXPECT_TRUE(two_.device.texts.empty());
  one_.neighbours.transmit(fabric::frame_of(2, 1, "data"));
  deliver();
  EXPECT_EQ(two_.device.texts, std::vector<std::string>{"data"});
}

TEST_F(NeighboursTest, AnAddressThatMovesIsFollowed) {
  const auto announce = [&](std::uint64_t mac) {
    say({.operation = Arp::kRequest,
         .sender_mac = MacAddress::from_u64(mac),
         .sender_ip = ipv4(7),
         .target_mac = {},
         .target_ip = ipv4(7)});
  };
  announce(0x20);
  EXPECT_FALSE(one_.neighbours.find(address(7))) << "it was not asked for";
  say({.operation = Arp::kReply,
       .sender_mac = MacAddress::from_u64(0x20),
       .sender_ip = ipv4(7),
       .target_mac = MacAddress::from_u64(1),
       .target_ip = ipv4(1)});
  EXPECT_EQ(one_.neighbours.find(address(7)), MacAddress::from_u64(0x20));
  announce(0x40);
  EXPECT_EQ(one_.neighbours.find(address(7)), MacAddress::from_u64(0x40));
}

TEST_F(NeighboursTest, ANewOwnerOfAnAddressUpdatesTheCachesThatHaveIt) {
  one_.neighbours.ask(address(2));
  deliver();
  ASSERT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(2));
  const auto port = network_.create_port("its next owner");
  Neighbours next(*port, MacAddress::from_u64(0x22));
  next.set_addresses({address(2)});
  next.announce(address(2));
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(0x22));
}

// The hub has a station for addresses that processes share (station.h).
TEST_F(NeighboursTest, SharedAddressesHaveTheMacOfTheirStation) {
  const auto station = MacAddress::from_u64(0x99);
  two_.neighbours.set_addresses({address(2), address(9), ipv6(2), ipv6(9)});
  two_.neighbours.set_station(station,
                              [](const auto& one) { return one == address(9) || one == ipv6(9); });
  for (const auto& one : {address(2), address(9), ipv6(2), ipv6(9)}) one_.neighbours.ask(one);
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(2));
  EXPECT_EQ(one_.neighbours.find(address(9)), station);
  EXPECT_EQ(one_.neighbours.find(ipv6(2)), MacAddress::from_u64(2));
  EXPECT_EQ(one_.neighbours.find(ipv6(9)), station);
  one_.neighbours.transmit(fabric::frame_of(2, 1, "data"));
  deliver();
  EXPECT_EQ(two_.device.texts, std::vector<std::string>{"data"}) << "the switch has its own MAC";
}

TEST_F(NeighboursTest, QuestionsFromASharedAddressNameTheStation) {
  const auto station = MacAddress::from_u64(0x99);
  two_.neighbours.set_addresses({address(9), ipv6(9)});
  two_.neighbours.set_station(station, [](const auto&) { return true; });
  two_.neighbours.ask(address(1));
  two_.neighbours.ask(ipv6(1));
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(9)), station) << "it will want to answer";
  EXPECT_EQ(one_.neighbours.find(ipv6(9)), station);
  two_.neighbours.announce(address(9));
  two_.neighbours.announce(ipv6(9));
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(9)), station);
  EXPECT_EQ(one_.neighbours.find(ipv6(9)), station);
}

TEST_F(NeighboursTest, AStationAnswersASolicitationForItsIpv6Address) {
  one_.neighbours.ask(ipv6(2));
  deliver();
  EXPECT_EQ(one_.neighbours.find(ipv6(2)), MacAddress::from_u64(2));
  EXPECT_EQ(two_.neighbours.find(ipv6(1)), MacAddress::from_u64(1)) << "it will want to answer";
  EXPECT_TRUE(two_.device.texts.empty());
  one_.neighbours.ask(ipv6(3));
  deliver();
  EXPECT_FALSE(one_.neighbours.find(ipv6(3)));
}

TEST_F(NeighboursTest, AnIpv6AddressThatMovesIsFollowed) {
  one_.neighbours.ask(ipv6(2));
  deliver();
  const auto port = network_.create_port("its next owner");
  Neighbours next(*port, MacAddress::from_u64(0x22));
  next.set_addresses({ipv6(2), ipv6(7)});
  next.announce(ipv6(2));
  next.announce(ipv6(7));
  deliver();
  EXPECT_EQ(one_.neighbours.find(ipv6(2)), MacAddress::from_u64(0x22));
  EXPECT_FALSE(one_.neighbours.find(ipv6(7))) << "it was not asked for";
}

TEST_F(NeighboursTest, WithoutAnAddressOfTheFamilyNoRequestIsSent) {
  two_.neighbours.set_addresses({ipv6(2)});
  two_.neighbours.ask(address(1));
  deliver();
  EXPECT_FALSE(two_.neighbours.find(address(1)));
  one_.neighbours.ask(address(2));
  deliver();
  EXPECT_FALSE(one_.neighbours.find(address(2))) << "an address that is not its own any more";
}

// RFC 4861 7.1.1: "The IP Hop Limit field has a value of 255"; "ICMP Checksum is valid".
TEST_F(NeighboursTest, RoutedAndDamagedMessagesAreIgnored) {
  const auto ask = [&](std::uint8_t hop_limit, std::byte damage) {
    wire::Frame frame;
    const auto head = frame.resize_head(14 + 40 + 32);
    std::ranges::fill(head, std::byte{0});
    wire::Ethernet{MacAddress::from_u64(1), MacAddress::from_u64(2), wire::EtherType::kIpv6}.emit(
        util::MutableView<wire::EthernetLayout>(head.first<14>()));
    wire::Ipv6{.payload_length = 32,
               .next_header = wire::IpProtocol::kIcmpv6,
               .hop_limit = hop_limit,
               .source = ipv6(9),
               .destination = ipv6(1)}
        .emit(util::MutableView<wire::Ipv6Layout>(head.subspan(14)));
    wire::Neighbor{.target = ipv6(1), .mac = MacAddress::from_u64(9)}.emit(
        util::MutableView<wire::NeighborLayout>(head.subspan(54)), ipv6(9), ipv6(1));
    head[54 + 31] ^= damage;
    two_.port->transmit(frame);
    deliver();
    return one_.neighbours.find(ipv6(9)).has_value();
  };
  EXPECT_FALSE(ask(64, std::byte{0}));
  EXPECT_FALSE(ask(255, std::byte{1}));
  EXPECT_TRUE(ask(255, std::byte{0}));
}

TEST_F(NeighboursTest, UnusableAndOwnAddressesAreNotLearnt) {
  Arp arp{.operation = Arp::kRequest,
          .sender_mac = MacAddress::from_u64(2),
          .sender_ip = {},
          .target_mac = {},
          .target_ip = ipv4(1)};
  say(arp);
  EXPECT_FALSE(one_.neighbours.find(gid_of({}))) << "a probe";
  arp.sender_ip = ipv4(1);
  say(arp);
  EXPECT_FALSE(one_.neighbours.find(address(1)));
  arp.sender_ip = ipv4(9);
  arp.sender_mac = MacAddress::broadcast();
  say(arp);
  EXPECT_FALSE(one_.neighbours.find(address(9)));
}

TEST_F(NeighboursTest, KnowsOnlySoMany) {
  Arp arp{.operation = Arp::kReply,
          .sender_mac = MacAddress::from_u64(2),
          .sender_ip = {},
          .target_mac = {},
          .target_ip = ipv4(1)};
  std::size_t known = 0;
  for (unsigned i = 1; i != 2 * Neighbours::kMax; ++i) {
    arp.sender_ip = {std::byte{10}, std::byte{0}, std::byte(i >> 8), std::byte(i & 0xff)};
    say(arp);
  }
  for (unsigned i = 1; i != 2 * Neighbours::kMax; ++i) {
    known += one_.neighbours.find(wire::Gid::from_ipv4(0x0a000000 + i)).has_value();
  }
  EXPECT_EQ(known, Neighbours::kMax);
}

}  // namespace
}  // namespace softhca::hub
