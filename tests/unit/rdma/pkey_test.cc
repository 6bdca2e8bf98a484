// Partitions (IBTA 10.9): the packets that a queue pair accepts.
#include <gtest/gtest.h>

#include <array>
#include <ios>
#include <tuple>
#include <vector>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using enum WorkStatus;

/// A pair whose ports have one P_Key each. Few retries, so that failures come early.
Pair& join(Pair& pair, std::uint16_t of_a, std::uint16_t of_b, QpType type = QpType::kRc) {
  pair.a.transport.set_pkeys(std::array{of_a});
  pair.b.transport.set_pkeys(std::array{of_b});
  pair.adjust = [](QpAttributes& attributes) {
    attributes.retry_count = 1;
    attributes.ack_timeout = 8;
  };
  pair.connect(type);
  return pair;
}

/// Rewrites the table of a running QP.
void rewrite(End& end, QueuePair& qp, std::uint16_t pkey) {
  end.transport.set_pkeys(std::array{pkey});
  qp.refresh_pkey();
}

/// Performs a one-packet WRITE, a WRITE of several packets, and a READ.
bool talk(Pair& pair) {
  pair.a.hca.sends.clear();
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.post(*pair.qa, read(0, 0, 8));
  pair.drive();
  return pair.a.hca.send_statuses() == std::vector{kSuccess, kSuccess, kSuccess};
}

TEST(Pkey, TwoLimitedMembersDoNotTalk) {
  for (const auto& [of_a, of_b, talks] : {std::tuple{0x8005, 0x8005, true},
                                          {0x8005, 0x0005, true},
                                          {0x0005, 0x8005, true},
                                          {0x0005, 0x0005, false},
                                          {0x8005, 0x8006, false},
                                          {0x7FFF, 0x7FFF, false},
                                          {0xFFFF, 0x7FFF, true}}) {
    Pair pair;
    join(pair, static_cast<std::uint16_t>(of_a), static_cast<std::uint16_t>(of_b));
    EXPECT_EQ(talk(pair), talks) << std::hex << of_a << " " << of_b;
    EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kPkey) == 0, talks);
  }
}

// 10.9.1.1: "A P_Key with the low-order 15 bits all zero is an invalid P_Key".
TEST(Pkey, AnInvalidOneIsNotEvenItsOwn) {
  for (const std::uint16_t key : {0x0000, 0x8000}) {
    Pair pair;
    join(pair, key, key);
    EXPECT_FALSE(talk(pair)) << key;
  }
}

TEST(Pkey, DatagramsOfTwoLimitedMembersAreDropped) {
  for (const bool full : {false, true}) {
    Pair pair;
    join(pair, 0x0005, full ? 0x8005 : 0x0005, QpType::kUd);
    for (int i = 0; i < 2; ++i) pair.b.post_receive(*pair.qb, {End::sge(0, 1024)});
    for (int i = 0; i < 2; ++i) {
      auto datagram = datagram_to(pair.b, 0, 100);
      pair.a.post(*pair.qa, datagram);
      pair.drive();
    }
    EXPECT_EQ(pair.b.hca.receives.size(), full ? 2u : 0u);
  }
}

// 10.9.2: the queue pair chooses the index, the subnet manager its table entry.
TEST(Pkey, ATableThatIsRewrittenCountsForRunningQueuePairs) {
  Pair pair;
  join(pair, 0x8005, 0x8005);
  ASSERT_TRUE(talk(pair));
  rewrite(pair.a, *pair.qa, 0x8006);
  rewrite(pair.b, *pair.qb, 0x8006);
  EXPECT_TRUE(talk(pair));
  EXPECT_EQ(pair.qa->pkey(), 0x8006);
  rewrite(pair.b, *pair.qb, 0x8005);
  EXPECT_FALSE(talk(pair));
}

// 9.6.1: the P_Key of a packet to QP1 is compared with all of the port's table.
TEST(Pkey, TheGsiIsInEachPartitionOfThePort) {
  constexpr std::uint32_t kGsiQkey = 0x80010000;
  for (const auto& [second, to_gsi, takes] : {std::tuple{0x8007, true, true},
                                              {0x0007, true, true},
                                              {0x8006, true, false},
                                              {0x0000, true, false},
                                              {0x8007, false, false}}) {
    Pair pair;
    join(pair, 0x8007, 0x8005, QpType::kUd);
    pair.b.transport.set_pkeys(
        std::array<std::uint16_t, 2>{0x8005, static_cast<std::uint16_t>(second)});
    for (auto* qp : {pair.qa, pair.qb}) {
      auto attributes = qp->attributes();
      attributes.qkey = kGsiQkey;
      auto& end = qp == pair.qa ? pair.a : pair.b;
      ASSERT_TRUE(end.transport.modify(*qp, QpState::kRts, attributes));
    }
    if (to_gsi) pair.b.transport.set_gsi(pair.qb->qpn());
    pair.b.post_receive(*pair.qb, {End::sge(0, 1024)});
    auto datagram = datagram_to(pair.b, 0, 100, to_gsi ? Qpn(1) : pair.qb->qpn());
    datagram.ud.qkey = kGsiQkey;
    pair.a.post(*pair.qa, datagram);
    pair.drive();
    EXPECT_EQ(pair.b.hca.receives.size(), takes ? 1u : 0u) << std::hex << second << to_gsi;
    EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kPkey), takes ? 0u : 1u);
  }
}

TEST(Pkey, AnIndexBeyondTheTableIsOfNoPartition) {
  Pair pair;
  pair.adjust = [](QpAttributes& attributes) {
    attributes.pkey_index = 1;
    attributes.retry_count = 1;
    attributes.ack_timeout = 8;
  };
  pair.connect();
  EXPECT_FALSE(talk(pair));
}

}  // namespace
}  // namespace softhca::rdma::test
