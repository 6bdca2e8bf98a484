// Congestion control (IBTA Annex A17 17.9.3; DCQCN) on virtual time: marks, notifications, and a
// sender that slows down and recovers. The sender marks its own packets, in place of a router.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"
#include "wire/opcode.h"

namespace softhca::rdma::test {
namespace {

using enum WorkStatus;

constexpr std::uint8_t kMarked = 3;
constexpr std::uint32_t kMtu = 1024;
constexpr std::uint32_t kMegabyte = 1u << 20;
const QpAttributes kAttributes = [] {
  QpAttributes attributes;
  attributes.pd = kPd;
  return attributes;
}();

class Congestion : public ::testing::Test {
 protected:
  Congestion() { pair.keep_sent = true; }
  void connect(std::uint8_t traffic_class = kMarked) {
    // Only packets of a's QP are marked.
    pair.adjust = [=](QpAttributes& attributes) {
      if (attributes.remote_qpn == Qpn(0x22)) attributes.path.traffic_class = traffic_class;
    };
    pair.connect();
    pair.a.fill(0, kMegabyte, 1);
  }
  /// Only one decrease, to this rate.
  void make_steady(std::uint32_t rate) {
    auto& r = at_a().reaction;
    r.rate_to_set_on_first_cnp = rate;
    r.time_reset = r.byte_reset = 0;
    r.rate_reduce_monitor_period = UINT32_MAX;
  }
  /// Writes from a to b. Returns the time until completion.
  util::Duration write_takes(std::uint32_t bytes) {
    const auto begin = pair.now;
    pair.a.post(*pair.qa, write(0, kMegabyte, bytes));
    while (pair.a.hca.sends.empty() && pair.step()) {
    }
    const auto end = pair.now;
    pair.drive();
    EXPECT_EQ(pair.a.hca.sends.size(), 1u);
    if (!pair.a.hca.sends.empty()) {
      EXPECT_EQ(pair.a.hca.sends[0].status, kSuccess);
    }
    pair.a.hca.sends.clear();
    EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(kMegabyte), bytes), 0);
    return end - begin;
  }
  std::vector<wire::IbPacket> cnps() {
    std::vector<wire::IbPacket> found;
    for (const auto& [packet, to_b] : pair.sent) {
      if (packet.bth.opcode != wire::Opcode::CNP) continue;
      EXPECT_FALSE(to_b);
      found.push_back(packet);
    }
    return found;
  }
  CongestionControl& at_a() { return pair.a.transport.congestion(); }
  CongestionControl& at_b() { return pair.b.transport.congestion(); }

  Pair pair;
};

TEST_F(Congestion, AMarkedPacketIsAnsweredByACnpToItsSender) {
  connect();
  write_takes(8);
  const auto found = cnps();
  ASSERT_EQ(found.size(), 1u);
  const auto& cnp = found[0];
  EXPECT_TRUE(cnp.bth.becn);
  EXPECT_EQ(cnp.bth.dest_qp, pair.qa->qpn());
  EXPECT_EQ(cnp.payload_size, 16);
  // As in the CNP of a ConnectX-4 Lx in scapy's tests.
  EXPECT_EQ(cnp.address.traffic_class, 0xC2);
  EXPECT_EQ(cnp.address.destination_gid, pair.a.gid.gid);
  EXPECT_EQ(at_b().counters.ecn_marked_packets, 1u);
  EXPECT_EQ(at_b().counters.cnp_sent, 1u);
  EXPECT_EQ(at_a().counters.cnp_handled, 1u);
}

TEST_F(Congestion, WithoutAMarkNothingHappens) {
  for (const std::uint8_t ecn : {0, 1, 2}) {
    Pair other;
    other.adjust = [=](QpAttributes& attributes) { attributes.path.traffic_class = ecn; };
    other.connect();
    other.a.post(*other.qa, write(0, kMegabyte, 8));
    other.drive();
    EXPECT_EQ(other.b.transport.congestion().counters.ecn_marked_packets, 0u);
    EXPECT_EQ(other.a.transport.congestion().counters.cnp_handled, 0u);
  }
}

TEST_F(Congestion, EachMarkedPacketCountsAndACnpComesOnceInItsTime) {
  connect();
  at_b().notification.min_time_between_cnps = 1'000'000;
  write_takes(100 * kMtu);
  EXPECT_EQ(at_b().counters.ecn_marked_packets, 100u);
  EXPECT_EQ(cnps().size(), 1u);
}

TEST_F(Congestion, AReceiverWithCongestionControlOffSendsNoCnp) {
  connect();
  at_b().notifies[0] = false;
  write_takes(8);
  EXPECT_EQ(at_b().counters.ecn_marked_packets, 1u);
  EXPECT_EQ(at_b().counters.cnp_sent, 0u);
  EXPECT_TRUE(cnps().empty());
}

TEST_F(Congestion, CnpsHaveTheDscpThatIsSet) {
  connect();
  at_b().notification.cnp_dscp = 10;
  write_takes(8);
  EXPECT_EQ(cnps().at(0).address.traffic_class, 10 << 2 | 2);
}

TEST_F(Congestion, ASlowQpSendsAtItsRate) {
  connect();
  make_steady(100);
  write_takes(8);  // causes the CNP
  EXPECT_EQ(at_a().flows(), 1u);
  EXPECT_DOUBLE_EQ(at_a().rate(*pair.qa, pair.now), 100);
  const auto took = write_takes(kMegabyte);
  // 8.4 Mb at 100 Mb/s take 84 ms, plus headers. The write completes without waiting for the pacing
  // of its last packets.
  EXPECT_GT(took, 83ms);
  EXPECT_LT(took, 100ms);
}

TEST_F(Congestion, ASlowQpAnswersReadsAsFastAsEver) {
  connect(0);
  pair.b.fill(kMegabyte, kMegabyte, 2);
  auto& r = at_b().reaction;
  r.rate_to_set_on_first_cnp = 1;
  r.time_reset = r.byte_reset = 0;
  at_b().handle_cnp(*pair.qb, 0, pair.now);
  const auto begin = pair.now;
  pair.a.post(*pair.qa, read(0, kMegabyte, kMegabyte));
  while (pair.a.hca.sends.empty() && pair.step()) {
  }
  EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::ElementsAre(kSuccess));
  EXPECT_LT(pair.now - begin, 20ms) << "at 1 Mb/s it would take 8 s";
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(kMegabyte), kMegabyte), 0);
  EXPECT_TRUE(at_b().active());
}

TEST_F(Congestion, OtherQpsAreAsFastAsEver) {
  connect();
  make_steady(1);
  write_takes(8);
  auto& qa = pair.a.create_qp(Qpn(0x33), QpType::kRc, kAttributes, {});
  auto& qb = pair.b.create_qp(Qpn(0x44), QpType::kRc, kAttributes, {});
  Pair::to_rts(pair.a, qa, pair.attributes_for(pair.a, pair.b, qb.qpn()));
  Pair::to_rts(pair.b, qb, pair.attributes_for(pair.b, pair.a, qa.qpn()));
  const auto begin = pair.now;
  pair.a.post(qa, write(0, kMegabyte, kMegabyte));
  while (pair.a.hca.sends.empty() && pair.step()) {
  }
  EXPECT_LT(pair.now - begin, 20ms);
}

TEST_F(Congestion, ASlowQpLosesNothing) {
  Pair lossy({.loss = 0.05}, 3);
  lossy.adjust = [](QpAttributes& attributes) {
    attributes.path.traffic_class = kMarked;
    attributes.ack_timeout = 8;
  };
  lossy.connect();
  lossy.a.fill(0, kMegabyte, 1);
  for (unsigned i = 0; i != 16; ++i) {
    lossy.a.post(*lossy.qa, write(i * 65536, kMegabyte + i * 65536, 65536));
  }
  lossy.drive();
  ASSERT_EQ(lossy.a.hca.sends.size(), 16u);
  for (const auto& sent : lossy.a.hca.sends) EXPECT_EQ(sent.status, kSuccess);
  EXPECT_EQ(std::memcmp(lossy.a.at(0), lossy.b.at(kMegabyte), kMegabyte), 0);
  EXPECT_GT(lossy.a.transport.congestion().counters.cnp_handled, 10u);
  EXPECT_GT(lossy.a.counters.retransmitted_packets, 0u);
}

TEST_F(Congestion, ThePortThatDoesNotReactCountsTheCnp) {
  connect();
  at_a().reacts[0] = false;
  write_takes(8);
  EXPECT_EQ(at_a().counters.cnp_handled, 0u);
  EXPECT_EQ(at_a().counters.cnp_ignored, 1u);
  EXPECT_FALSE(at_a().active());
}

// "a decrease takes alpha / 2^gd of the rate", and min_dec_fac bounds the result from below.
TEST_F(Congestion, ADecreaseGoesByAlphaAndNotBelowItsLeast) {
  connect(0);
  auto& control = at_a();
  auto& r = control.reaction;
  r.initial_alpha_value = 1023;
  r.gd = 12;
  control.handle_cnp(*pair.qa, 0, pair.now);
  EXPECT_NEAR(control.rate(*pair.qa, pair.now), 100'000 * (1 - 1023.0 / 4096), 1);
  control.forget(*pair.qa);
  r.gd = 10;
  control.handle_cnp(*pair.qa, 0, pair.now);
  EXPECT_NEAR(control.rate(*pair.qa, pair.now), 50'000, 1);
}

TEST_F(Congestion, OneDecreaseInEachMonitorPeriod) {
  connect(0);
  auto& control = at_a();
  control.handle_cnp(*pair.qa, 0, pair.now);
  const auto once = control.rate(*pair.qa, pair.now);
  control.handle_cnp(*pair.qa, 0, pair.now + 3us);
  EXPECT_DOUBLE_EQ(control.rate(*pair.qa, pair.now + 3us), once);
  control.handle_cnp(*pair.qa, 0, pair.now + 4us);
  EXPECT_LT(control.rate(*pair.qa, pair.now + 4us), 0.6 * once);
}

TEST_F(Congestion, ARateIsNeverBelowTheLeast) {
  connect(0);
  auto& control = at_a();
  control.reaction.min_rate = 1000;
  auto at = pair.now;
  for (int i = 0; i != 100; ++i) control.handle_cnp(*pair.qa, 0, at += 5us);
  EXPECT_DOUBLE_EQ(control.rate(*pair.qa, at), 1000);
}

// Fast recovery halves the distance to the target; afterwards the target itself grows.
TEST_F(Congestion, ItRecoversFirstHalfwayAndThenByItsIncrease) {
  connect(0);
  auto& control = at_a();
  auto& r = control.reaction;
  r.byte_reset = 0;
  r.threshold = 2;
  r.ai_rate = 40;
  r.rate_to_set_on_first_cnp = 0;
  r.max_rate = 10'000;
  control.handle_cnp(*pair.qa, 0, pair.now);
  control.handle_cnp(*pair.qa, 0, pair.now + 5us);
  const auto begin = pair.now + 5us;
  const auto low = control.rate(*pair.qa, begin);
  const double target = 10'000;  // unchanged: no increase between the two decreases
  const auto first = (low + target) / 2;
  EXPECT_NEAR(control.rate(*pair.qa, begin + 300us), first, 1);
  EXPECT_NEAR(control.rate(*pair.qa, begin + 600us), (first + target) / 2, 1);
}

TEST_F(Congestion, AQpThatHasRecoveredIsNotSlowedDown) {
  connect();
  at_a().reaction.ai_rate = 10'000;
  write_takes(8);
  EXPECT_TRUE(at_a().active());
  pair.drive_for(100ms);
  at_a().sweep(pair.now);
  EXPECT_FALSE(at_a().active());
}

TEST_F(Congestion, AQpThatIsResetIsSlowNoMore) {
  connect();
  make_steady(1);
  write_takes(8);
  EXPECT_TRUE(at_a().active());
  EXPECT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kReset, {}));
  EXPECT_FALSE(at_a().active());
}

TEST_F(Congestion, MoreThanThereArePlacesForAreIgnored) {
  connect(0);
  auto& control = at_a();
  std::vector<QueuePair*> qps;
  for (std::uint32_t i = 0; i != CongestionControl::kFlowsMax + 1; ++i) {
    qps.push_back(&pair.a.create_qp(Qpn(0x1000 + i), QpType::kRc, kAttributes, {}));
    control.handle_cnp(*qps.back(), 0, pair.now);
  }
  EXPECT_EQ(control.flows(), CongestionControl::kFlowsMax);
  EXPECT_EQ(control.counters.cnp_ignored, 1u);
  // Removing any flow leaves the places of the others valid.
  for (std::size_t i = 0; i < qps.size(); i += 2) pair.a.transport.destroy_qp(*qps[i]);
  EXPECT_EQ(control.flows(), CongestionControl::kFlowsMax / 2);
  for (std::size_t i = 1; i < qps.size(); i += 2) pair.a.transport.destroy_qp(*qps[i]);
  EXPECT_FALSE(control.active());
}

TEST(CongestionOfDatagrams, NamesTheQpThatTheyAreFrom) {
  Pair pair;
  pair.keep_sent = true;
  pair.connect(QpType::kUd);
  auto request = datagram_to(pair.b, 0, 64);
  request.ud.traffic_class = kMarked;
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 5000)}, 9);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
  const auto is_cnp = [](const Pair::Sent& sent) {
    return sent.packet.bth.opcode == wire::Opcode::CNP;
  };
  ASSERT_EQ(std::ranges::count_if(pair.sent, is_cnp), 1);
  EXPECT_EQ(std::ranges::find_if(pair.sent, is_cnp)->packet.bth.dest_qp, Qpn(0x11));
  EXPECT_EQ(pair.a.transport.congestion().counters.cnp_handled, 1u);
}

TEST(CongestionOfDatagrams, ShortOnesWaitForTheRateToo) {
  Pair pair;
  pair.connect(QpType::kUd);
  auto request = datagram_to(pair.b, 0, 64);
  request.ud.number = 1;
  pair.a.post(*pair.qa, request);  // the next ones have the same destination
  pair.drive();
  auto& control = pair.a.transport.congestion();
  control.reaction.rate_to_set_on_first_cnp = 1;
  control.reaction.time_reset = control.reaction.byte_reset = 0;
  control.handle_cnp(*pair.qa, 0, pair.now);
  const auto before = pair.a.transmitted;
  for (unsigned i = 0; i != 100; ++i) {
    pair.a.post(*pair.qa, request);
    pair.a.run(pair.now);
  }
  EXPECT_GE(pair.a.hca.short_datagrams, 1u);
  EXPECT_LE(pair.a.transmitted - before, 4u) << "all at the same virtual time";
  pair.drive();
  EXPECT_EQ(pair.a.transmitted - before, 100u);
}

}  // namespace
}  // namespace softhca::rdma::test
