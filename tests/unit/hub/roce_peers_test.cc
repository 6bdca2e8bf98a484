// Which addresses RocePeers replaces when those that share a hash are too many.
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

}  // namespace
}  // namespace softhca::hub
