// Token buckets of peers.
#include "hub/peer_rates.h"

#include <gtest/gtest.h>

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

wire::Gid peer(std::uint32_t number) { return wire::Gid::from_ipv4(0x0a00'0000 + number); }

class PeerRatesTest : public testing::Test {
 protected:
  unsigned sent(PeerRates& rates, const wire::Gid& from, unsigned tries = 100) const {
    unsigned count = 0;
    for (unsigned i = 0; i != tries; ++i) count += rates.allow(from, now) ? 1 : 0;
    return count;
  }
  util::Time now{1h};
};

TEST_F(PeerRatesTest, APeerSendsABurstAndThenAtItsRate) {
  PeerRates rates({.burst = 10, .per_second = 4});
  EXPECT_EQ(sent(rates, peer(1)), 10u);
  now += 249ms;
  EXPECT_EQ(sent(rates, peer(1)), 0u);
  now += 1ms;
  EXPECT_EQ(sent(rates, peer(1)), 1u);
  now += 1s;
  EXPECT_EQ(sent(rates, peer(1)), 4u);
  now += 24h;
  EXPECT_EQ(sent(rates, peer(1)), 10u);
}

TEST_F(PeerRatesTest, PeersDoNotUseEachOthersTokens) {
  PeerRates rates({.burst = 3, .per_second = 1});
  EXPECT_EQ(sent(rates, peer(1)), 3u);
  EXPECT_EQ(sent(rates, peer(2)), 3u);
}

TEST_F(PeerRatesTest, ATimeThatGoesBackGivesNothing) {
  PeerRates rates({.burst = 1, .per_second = 1});
  EXPECT_EQ(sent(rates, peer(1)), 1u);
  now -= 10s;
  EXPECT_EQ(sent(rates, peer(1)), 0u);
  now += 10s;
  EXPECT_EQ(sent(rates, peer(1)), 0u);
}

// Addresses can be forged.
TEST_F(PeerRatesTest, ManyPeersShareOneBucketAndLeaveOthersTheirs) {
  PeerRates rates({.burst = 4, .per_second = 1, .peers_max = 2});
  EXPECT_EQ(sent(rates, peer(1), 2), 2u);
  EXPECT_EQ(sent(rates, peer(2), 2), 2u);
  unsigned strangers = 0;
  for (unsigned i = 3; i != 100; ++i) strangers += sent(rates, peer(i), 1);
  EXPECT_EQ(strangers, 4u) << "all of them together";
  EXPECT_EQ(rates.peers(), 2u);
  EXPECT_EQ(sent(rates, peer(1)), 2u);
  EXPECT_EQ(sent(rates, peer(2)), 2u);
}

TEST_F(PeerRatesTest, ABucketThatIsFullAgainIsReplaced) {
  PeerRates rates({.burst = 4, .per_second = 1, .peers_max = 2});
  EXPECT_EQ(sent(rates, peer(1)), 4u);
  now += 1s;
  EXPECT_EQ(sent(rates, peer(2)), 4u);
  now += 3s;
  EXPECT_EQ(sent(rates, peer(3)), 4u) << "in place of the first";
  EXPECT_EQ(sent(rates, peer(2)), 3u) << "the second has not been idle for so long";
  EXPECT_EQ(rates.peers(), 2u);
}

}  // namespace
}  // namespace softhca::hub
