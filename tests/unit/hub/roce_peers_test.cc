// Which addresses are beyond the hub, and which RocePeers replaces when too many share a hash.
#include "hub/roce_peers.h"

#include <gtest/gtest.h>

namespace softhca::hub {
namespace {

/// Addresses that RocePeers::set_of() hashes alike, as anyone can choose them.
wire::Gid alike(unsigned number) {
  wire::Gid gid;
  gid.bytes[0] = std::byte{0x20};
  gid.bytes[8] = std::byte{0x20};
  gid.bytes[7] = gid.bytes[15] = std::byte(number);
  return gid;
}

TEST(RocePeers, PacketsOfOthersDoNotReplaceAnAddressThatWasAskedFor) {
  RocePeers peers;
  const util::Time now{std::chrono::hours(1)};
  peers.note_source(alike(1));
  peers.ask(alike(2), now);
  for (unsigned i = 3; i != 20; ++i) peers.note_source(alike(i));
  peers.note_source(alike(1));
  EXPECT_FALSE(peers.is_beyond(alike(2), now));
  EXPECT_TRUE(peers.is_beyond(alike(2), now + RocePeers::kGrace));
  EXPECT_TRUE(peers.is_source(alike(1)));
  EXPECT_FALSE(peers.is_source(alike(3))) << "the oldest";
}

TEST(RocePeers, ASourceThatWasReplacedIsNotedAgain) {
  RocePeers peers;
  const util::Time now{std::chrono::hours(1)};
  peers.note_source(alike(1));
  for (unsigned i = 2; i != 6; ++i) peers.ask(alike(i), now);
  EXPECT_FALSE(peers.is_source(alike(1)));
  peers.note_source(alike(1));
  EXPECT_TRUE(peers.is_source(alike(1)));
}

TEST(RocePeers, AnAddressIsBeyondTheHubOnceNoStationHasAnsweredOrAPacketCame) {
  RocePeers peers;
  const auto one = wire::Gid::from_ipv4(10, 0, 0, 1), two = wire::Gid::from_ipv4(10, 0, 0, 2);
  const util::Time now{std::chrono::hours(1)};
  EXPECT_FALSE(peers.is_beyond(one, now));
  peers.ask(one, now);
  EXPECT_FALSE(peers.is_beyond(one, now));
  peers.ask(one, now + RocePeers::kGrace / 2);  // asked again: the time runs from the first
  EXPECT_TRUE(peers.is_beyond(one, now + RocePeers::kGrace));
  EXPECT_FALSE(peers.is_beyond(two, now));
  peers.note_source(two);
  EXPECT_TRUE(peers.is_beyond(two, now));
}

TEST(RocePeers, SomeAddressesHaveNoRoute) {
  const auto own = wire::Gid::from_ipv4(127, 0, 0, 1);
  EXPECT_FALSE(find_route(own, wire::Gid::from_ipv4(127, 0, 0, 2))) << "loopback";
  EXPECT_FALSE(find_route(own, wire::Gid::from_ipv4(239, 0, 0, 2))) << "a group";
  EXPECT_FALSE(find_route(wire::Gid::from_ipv4(10, 255, 255, 1), own))
      << "a source that the host does not have";
  wire::Gid link_local;
  link_local.bytes = {std::byte{0xfe}, std::byte{0x80}};
  EXPECT_FALSE(find_route(own, link_local));
}

}  // namespace
}  // namespace softhca::hub
