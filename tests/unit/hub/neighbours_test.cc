// Who has which address: requests that are answered, and what is learnt of others (RFC 826).
#include "hub/neighbours.h"

#include <gtest/gtest.h>

#include <memory>

#include "fabric/recorder.h"
#include "fabric/switch.h"

namespace softhca::hub {
namespace {

using wire::Arp;
using wire::MacAddress;

constexpr Neighbours::Ipv4Address address(std::uint8_t last) {
  return {std::byte{198}, std::byte{19}, std::byte{0}, std::byte{last}};
}

/// A device with its neighbours, on a switch.
struct Station {
  Station(fabric::Switch& network, std::uint8_t number)
      : port(network.create_port("station")),
        neighbours(*port, MacAddress::from_u64(number), address(number)) {
    neighbours.set_receiver(&device);
  }
  ~Station() { neighbours.set_receiver(nullptr); }

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
  /// As if station 2 said it.
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
  Station one_{network_, 1}, two_{network_, 2};
};

TEST_F(NeighboursTest, WhoIsAskedForAnswers) {
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
         .sender_ip = address(7),
         .target_mac = {},
         .target_ip = address(7)});
  };
  announce(0x20);
  EXPECT_FALSE(one_.neighbours.find(address(7))) << "nobody has asked for it";
  say({.operation = Arp::kReply,
       .sender_mac = MacAddress::from_u64(0x20),
       .sender_ip = address(7),
       .target_mac = MacAddress::from_u64(1),
       .target_ip = address(1)});
  EXPECT_EQ(one_.neighbours.find(address(7)), MacAddress::from_u64(0x20));
  announce(0x40);
  EXPECT_EQ(one_.neighbours.find(address(7)), MacAddress::from_u64(0x40));
}

TEST_F(NeighboursTest, WhoTakesAnAddressTellsThoseWhoKnewIt) {
  one_.neighbours.ask(address(2));
  deliver();
  ASSERT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(2));
  const auto port = network_.create_port("its next owner");
  Neighbours next(*port, MacAddress::from_u64(0x22), address(2));
  next.announce();
  deliver();
  EXPECT_EQ(one_.neighbours.find(address(2)), MacAddress::from_u64(0x22));
}

TEST_F(NeighboursTest, WhatIsNobodysOrOursIsNotLearnt) {
  Arp arp{.operation = Arp::kRequest,
          .sender_mac = MacAddress::from_u64(2),
          .sender_ip = {},
          .target_mac = {},
          .target_ip = address(1)};
  say(arp);
  EXPECT_FALSE(one_.neighbours.find({})) << "a probe";
  arp.sender_ip = address(1);
  say(arp);
  EXPECT_FALSE(one_.neighbours.find(address(1)));
  arp.sender_ip = address(9);
  arp.sender_mac = MacAddress::broadcast();
  say(arp);
  EXPECT_FALSE(one_.neighbours.find(address(9)));
}

TEST_F(NeighboursTest, KnowsOnlySoMany) {
  Arp arp{.operation = Arp::kReply,
          .sender_mac = MacAddress::from_u64(2),
          .sender_ip = {},
          .target_mac = {},
          .target_ip = address(1)};
  std::size_t known = 0;
  for (unsigned i = 1; i != 2 * Neighbours::kMax; ++i) {
    arp.sender_ip = {std::byte{10}, std::byte{0}, std::byte(i >> 8), std::byte(i & 0xff)};
    say(arp);
  }
  for (unsigned i = 1; i != 2 * Neighbours::kMax; ++i) {
    known +=
        one_.neighbours.find({std::byte{10}, std::byte{0}, std::byte(i >> 8), std::byte(i & 0xff)})
            .has_value();
  }
  EXPECT_EQ(known, Neighbours::kMax);
}

}  // namespace
}  // namespace softhca::hub
