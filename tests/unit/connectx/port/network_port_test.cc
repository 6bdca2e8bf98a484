// Traffic between the function and the wire (PRM 3.4, 11.1): limits, loopback, counts.
#include "connectx/port/network_port.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "connectx/cable.h"
#include "util/endian.h"
#include "wire/ib_header.h"

namespace softhca::connectx::test {
namespace {

using enum connectx::Service;
using enum Way;

using Bytes = Cable::Bytes;

constexpr std::uint64_t kOwn = 0x020000000001, kListed = 0x020000000041, kGid = 0x020000000081;
constexpr std::uint64_t kStranger = 0x020000000002, kGroup = 0x01005E000001;
constexpr std::uint64_t kEverybody = 0xFFFFFFFFFFFF;

/// A frame of `size` bytes, tagged if `tci` is given.
wire::Frame frame_to(std::uint64_t destination, std::size_t size = 100, int tci = -1) {
  Bytes bytes(size);
  std::ranges::copy(wire::MacAddress::from_u64(destination).bytes, bytes.begin());
  if (tci >= 0 && size >= 18) util::store_be32(bytes.data() + 12, 0x81000000u | unsigned(tci));
  auto frame = wire::Frame::from_bytes(std::span(bytes).first(std::min<std::size_t>(size, 192)));
  if (size > 192) (void)frame.own_payload(size - 192);
  return frame;
}

class NetworkPortTest : public ::testing::Test {
 protected:
  NetworkPortTest() {
    const std::array own{wire::MacAddress::from_u64(kOwn), wire::MacAddress::from_u64(kListed)};
    port.set_vport_addresses(own);
    const std::array gids{wire::MacAddress::from_u64(kGid)};
    port.set_roce_addresses(gids);
  }
  void send(std::uint64_t destination, TransportDomain domain = TransportDomain(5)) {
    port.transmit_ethernet(frame_to(destination), domain, 0);
  }
  std::uint64_t packets(const TrafficTable& table) { return table.total().packets; }

  Cable wire;
  NetworkPort port{wire};
};

TEST_F(NetworkPortTest, AFrameForAnotherStationGoesToTheWireOnly) {
  send(kStranger);
  EXPECT_EQ(wire.sent.size(), 1u);
  EXPECT_TRUE(wire.looped.empty());
}

TEST_F(NetworkPortTest, AFrameForTheVportsAddressIsLoopedBackOnly) {
  send(kOwn);
  send(kListed);
  send(kGid);
  EXPECT_TRUE(wire.sent.empty());
  ASSERT_EQ(wire.looped.size(), 3u);
  EXPECT_EQ(wire.looped[0].second, 5u) << "with the transport domain of its sender";
  port.transmit(frame_to(kGid));
  ASSERT_EQ(wire.looped.size(), 4u);
  EXPECT_EQ(wire.looped[3].second, NetworkPort::kNoDomain.value());
  EXPECT_EQ(packets(port.counters().tx(kEthernet, kLoopback)), 3u);
  EXPECT_EQ(packets(port.counters().tx(kRdma, kLoopback)), 1u);
  EXPECT_EQ(packets(port.counters().tx(kEthernet, kWire)), 0u);
}

// In the filter of own addresses, these map to one bit.
TEST_F(NetworkPortTest, AddressesThatEndLikeOwnOnesAreOthers) {
  for (const std::uint64_t other : {0x0200000000C1u, 0x020000000101u, 0x040000000001u}) send(other);
  EXPECT_EQ(wire.sent.size(), 3u);
  EXPECT_TRUE(wire.looped.empty());
}

TEST_F(NetworkPortTest, AMulticastFrameIsSentAndLoopedBack) {
  send(kGroup);
  send(kEverybody);
  port.transmit(frame_to(kGroup));
  EXPECT_EQ(wire.sent.size(), 3u);
  EXPECT_EQ(wire.looped.size(), 3u);
  EXPECT_EQ(packets(port.counters().tx(kEthernet, kWire)), 2u) << "counted once";
  EXPECT_EQ(packets(port.counters().tx(kEthernet, kLoopback)), 0u);
}

TEST_F(NetworkPortTest, CountsByServiceAndDestinationAndPriority) {
  port.transmit_ethernet(frame_to(kStranger, 100), TransportDomain(5), 6);
  port.transmit_ethernet(frame_to(kEverybody, 200), TransportDomain(5), 0);
  port.transmit(frame_to(kGroup, 300, 3 << 13));
  port.transmit(frame_to(kStranger, 400));
  const auto& ethernet = port.counters().tx(kEthernet, kWire);
  const auto& rdma = port.counters().tx(kRdma, kWire);
  EXPECT_EQ(ethernet.of(Cast::kUnicast).octets, 100u);
  EXPECT_EQ(ethernet.of(Cast::kBroadcast).octets, 200u);
  EXPECT_EQ(ethernet.of(Cast::kMulticast).packets, 0u);
  EXPECT_EQ(ethernet.of_priority(6).octets, 100u);
  EXPECT_EQ(ethernet.of_priority(0).octets, 200u);
  EXPECT_EQ(rdma.of(Cast::kMulticast).octets, 300u);
  EXPECT_EQ(rdma.of(Cast::kUnicast).octets, 400u);
  EXPECT_EQ(rdma.of_priority(3).packets, 1u) << "that of its tag";
  EXPECT_EQ(rdma.total().octets, 700u);

  port.count_received(frame_to(kGroup, 500, 7 << 13), kRdma);
  EXPECT_EQ(port.counters().rx(kRdma, kWire).of(Cast::kMulticast).octets, 500u);
  EXPECT_EQ(port.counters().rx(kRdma, kWire).of_priority(7).packets, 1u);
}

TEST_F(NetworkPortTest, FramesUpToTheMtuPass) {
  port.state().set_mtu(1522);
  EXPECT_TRUE(port.accept(frame_to(kOwn, 1518))) << "and 4 bytes of FCS";
  EXPECT_FALSE(port.accept(frame_to(kOwn, 1519)));
  EXPECT_EQ(port.counters().received_oversize.packets, 1u);
  EXPECT_EQ(port.counters().received_oversize.octets, 1519u);
  port.transmit(frame_to(kStranger, 1519));
  EXPECT_TRUE(wire.sent.empty());
  EXPECT_EQ(port.counters().transmit_errors.packets, 1u);
  port.transmit(frame_to(kStranger, 1518));
  EXPECT_EQ(wire.sent.size(), 1u);
  port.state().set_mtu(NetworkPort::kMaxMtu);
  EXPECT_TRUE(port.accept(frame_to(kOwn, 9974)));
  EXPECT_FALSE(port.accept(frame_to(kOwn, 9975)));
}

TEST_F(NetworkPortTest, TheVportsMtuIsLowerOrThatOfThePort) {
  port.state().set_vport_mtu(1000);
  EXPECT_TRUE(port.accept(frame_to(kOwn, 996)));
  EXPECT_FALSE(port.accept(frame_to(kOwn, 997)));
  EXPECT_EQ(port.counters().received_oversize.packets, 0u);
  EXPECT_EQ(port.counters().received_errors.packets, 1u);
  EXPECT_EQ(packets(port.counters().rx(kEthernet, kWire)), 1u) << "the port has received it";
  port.state().set_vport_mtu(5000);
  EXPECT_FALSE(port.accept(frame_to(kOwn, 1519)));
  port.state().set_vport_mtu(0);
  EXPECT_TRUE(port.accept(frame_to(kOwn, 1518)));
}

TEST_F(NetworkPortTest, RuntsAreErrors) {
  EXPECT_FALSE(port.accept(frame_to(kOwn, 13)));
  EXPECT_EQ(port.counters().received_errors.packets, 1u);
  EXPECT_TRUE(port.accept(frame_to(kOwn, 59)));
  EXPECT_EQ(port.counters().received_undersize, 1u);
}

TEST_F(NetworkPortTest, NothingPassesWhileThePortIsDown) {
  using Admin = PortState::AdminStatus;
  port.state().set_admin_status(Admin::DOWN);
  EXPECT_FALSE(port.state().vport_is_up());
  send(kStranger);
  send(kOwn);
  EXPECT_FALSE(port.accept(frame_to(kOwn)));
  EXPECT_TRUE(wire.sent.empty() && wire.looped.empty());
  EXPECT_EQ(port.counters().transmitted_discards, 2u);
  EXPECT_EQ(packets(port.counters().rx(kEthernet, kWire)), 0u);
  EXPECT_EQ(port.counters().all_received_discards(), 0u) << "the port is down";
  port.state().set_admin_status(Admin::UP);
  send(kStranger);
  EXPECT_TRUE(port.accept(frame_to(kOwn)));
  EXPECT_EQ(wire.sent.size(), 1u);
}

TEST_F(NetworkPortTest, AVportThatIsDownDiscardsWhatThePortReceives) {
  port.state().set_vport_up(false);
  send(kStranger);
  EXPECT_TRUE(wire.sent.empty());
  EXPECT_FALSE(port.accept(frame_to(kOwn, 100, 2 << 13)));
  EXPECT_EQ(packets(port.counters().rx(kEthernet, kWire)), 1u);
  EXPECT_EQ(port.counters().received_discards[2], 1u);
  port.state().set_vport_up(true);
  EXPECT_TRUE(port.accept(frame_to(kOwn)));
}

TEST_F(NetworkPortTest, ALinkThatGoesDownIsSeenWhenItIsLookedAt) {
  wire.up = false;
  port.state().look_at_link();
  EXPECT_FALSE(port.state().vport_is_up());
  port.state().look_at_link();
  EXPECT_EQ(port.counters().link_downs, 1u);
  wire.up = true;
  port.state().look_at_link();
  EXPECT_TRUE(port.state().vport_is_up());
}

/// Receives a frame as Device does, with or without the fast path.
void receive(NetworkPort& port, const wire::Frame& frame, connectx::Service service, bool fast) {
  if (fast && port.can_count_fast(frame, service)) return port.count_fast(service);
  if (port.accept(frame)) port.count_received(frame, service);
}

/// A path of a QP at `source`. Two paths of one source have the same Ethernet header.
wire::IbHeader path_from(std::uint64_t source, std::uint32_t ip) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(source);
  address.destination_mac = wire::MacAddress::from_u64(kOwn);
  address.source_gid = wire::Gid::from_ipv4(ip);
  address.destination_gid = wire::Gid::from_ipv4(0x0A000001);
  return wire::IbHeader(address);
}

// PRM 11.1.5, 12.17: what a frame counts as depends on it alone, not on the frame before it.
TEST(NetworkPortFastPath, CountsAsTheSlowPathDoes) {
  Cable cable;
  NetworkPort fast{cable};
  NetworkPort slow{cable};
  const std::array paths{path_from(kStranger, 0x0A000002), path_from(kStranger, 0x0A000003),
                         path_from(kListed, 0x0A000002)};
  const std::array<std::uint64_t, 3> destinations{kOwn, kGroup, kEverybody};
  const std::array<std::size_t, 5> sizes{50, 60, 200, 1518, 1519};
  std::mt19937 random(1);
  unsigned taken_fast = 0;
  for (int i = 0; i != 50'000; ++i) {
    wire::Frame frame;
    const auto service = random() % 2 == 0 ? kRdma : kEthernet;
    if (service == kRdma) {
      const std::size_t payload = random() % 4 == 0 ? 1000 : 0;
      const auto& path = paths[random() % 8 < 6 ? 0 : random() % paths.size()];
      path.begin(wire::Opcode::RC_SEND_ONLY, payload, frame);
      if (payload != 0) (void)frame.own_payload(payload);
    } else {
      const bool is_last_kind = random() % 8 < 6;
      frame = frame_to(destinations[is_last_kind ? 0 : random() % destinations.size()],
                       sizes[is_last_kind ? 2 : random() % sizes.size()],
                       random() % 32 == 0 ? static_cast<int>(random() % 8) << 13 : -1);
    }
    // A RoCE packet for no QP goes to the Ethernet service.
    const auto counted = random() % 64 == 0 ? kEthernet : service;
    if (random() % 256 == 0) {
      const bool up = random() % 4 != 0;
      fast.state().set_vport_up(up);
      slow.state().set_vport_up(up);
    }
    taken_fast += fast.can_count_fast(frame, counted);
    receive(fast, frame, counted, true);
    receive(slow, frame, counted, false);
    ASSERT_EQ(std::memcmp(&fast.counters(), &slow.counters(), sizeof(TrafficCounters)), 0) << i;
  }
  EXPECT_GT(taken_fast, 5'000u);
}

// The link survives resets of the function, and its frame numbers continue.
TEST(NetworkPortAfterReset, NothingIsInFlightBeforeSomethingIsSent) {
  Cable wire;
  wire.already_released = 2107;
  const NetworkPort port{wire};
  EXPECT_EQ(port.in_flight(), 0u);
}

TEST(TrafficCountersTest, SizesAreThoseOfRfc2819) {
  constexpr std::array<std::size_t, 10> kLast{64,   127,  255,  511,  1023,
                                              1518, 2047, 4095, 8191, 10239};
  std::size_t first = 64;
  for (std::size_t i = 0; i < kLast.size(); ++i) {
    EXPECT_EQ(TrafficCounters::size_class(first), i) << first;
    EXPECT_EQ(TrafficCounters::size_class(kLast[i]), i) << kLast[i];
    first = kLast[i] + 1;
  }
}

TEST(TrafficCountersTest, DifferenceIsThatOfEachCounter) {
  TrafficCounters now;
  now.rx(kRdma, kWire).add(Cast::kMulticast, 7, 100);
  now.received_discards[3] = 5;
  now.link_downs = 9;
  const auto earlier = now;
  now.rx(kRdma, kWire).add(Cast::kMulticast, 7, 50);
  ++now.link_downs;
  const auto since = now.since(earlier);
  EXPECT_EQ(since.rx(kRdma, kWire).of(Cast::kMulticast).octets, 50u);
  EXPECT_EQ(since.received_discards[3], 0u);
  EXPECT_EQ(since.link_downs, 1u);
}

}  // namespace
}  // namespace softhca::connectx::test
