// Requests in flight have one cost bound for all QPs of a transport, in addition to the bound for
// each QP.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using enum WorkStatus;

constexpr std::size_t kPool = 16;
constexpr unsigned kPosted = 100;

class RequestPool : public ::testing::Test {
 protected:
  RequestPool() {
    pair.adjust = [](QpAttributes& attributes) { attributes.ack_timeout = 8; };
    pair.connect();
    pair.script = [this](const wire::IbPacket&, bool) {
      return lose ? Fate::kLose : Fate::kDeliver;
    };
  }
  /// Adds a QP on each side, connected to each other.
  QueuePair& add(std::uint32_t number) {
    const auto for_a = pair.attributes_for(pair.a, pair.b, Qpn(number));
    const auto for_b = pair.attributes_for(pair.b, pair.a, Qpn(number));
    auto& qp = pair.a.create_qp(Qpn(number), QpType::kRc, for_a, {});
    auto& other = pair.b.create_qp(Qpn(number), QpType::kRc, for_b, {});
    Pair::to_rts(pair.a, qp, for_a);
    Pair::to_rts(pair.b, other, for_b);
    return qp;
  }
  void post(QueuePair& qp) {
    for (unsigned i = 0; i < kPosted; ++i) pair.a.post(qp, write(0, 0x40000, 8));
  }
  /// Requests fetched from the send queue and not complete.
  std::size_t in_flight(const QueuePair& qp) {
    std::size_t done = 0;
    for (const auto& send : pair.a.hca.sends) done += send.qpn == qp.qpn() ? 1 : 0;
    return kPosted - pair.a.hca.sends_posted[qp.qpn()].size() - done;
  }

  Pair pair{WireOptions{.requests = kPool}};
  bool lose = true;
};

TEST_F(RequestPool, QpsShareItAndEachHasAtLeastOneRequest) {
  auto& second = add(0x50);
  auto& third = add(0x51);
  for (auto* qp : {pair.qa, &second, &third}) post(*qp);
  pair.drive_for(100us);
  EXPECT_LE(in_flight(*pair.qa) + in_flight(second) + in_flight(third), kPool + 2);
  for (auto* qp : {pair.qa, &second, &third}) EXPECT_GE(in_flight(*qp), 1u);
  lose = false;
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 3 * kPosted);
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
}

TEST_F(RequestPool, AnIdleQpKeepsNothingThatOthersNeed) {
  auto& second = add(0x50);
  post(*pair.qa);
  pair.drive_for(100us);
  ASSERT_EQ(in_flight(*pair.qa), kPool);
  lose = false;
  pair.drive();
  lose = true;
  post(second);
  pair.drive_for(100us);
  EXPECT_EQ(in_flight(second), kPool);
}

TEST_F(RequestPool, AQpInResetKeepsNothing) {
  auto& second = add(0x50);
  post(*pair.qa);
  pair.drive_for(100us);
  ASSERT_EQ(in_flight(*pair.qa), kPool);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kReset, {}));
  post(second);
  pair.drive_for(100us);
  EXPECT_EQ(in_flight(second), kPool);
}

TEST_F(RequestPool, FlushingNeedsNothingOfIt) {
  auto& second = add(0x50);
  post(*pair.qa);
  pair.drive_for(100us);
  ASSERT_TRUE(pair.a.transport.modify(second, QpState::kError, {}));
  post(second);
  pair.drive_for(100us);
  EXPECT_EQ(in_flight(second), 0u);
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kFlushed));
}

}  // namespace
}  // namespace softhca::rdma::test
