// The longest message of a QP: what it posts, and what its peer asks for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

/// Each of the two QPs has its own message bound.
void connect_bounded(Pair& pair, std::uint64_t max_a, std::uint64_t max_b) {
  pair.adjust = [=](QpAttributes& attributes) {
    attributes.message_max = attributes.remote_qpn == Qpn(0x22) ? max_a : max_b;
  };
  pair.connect();
}

// Messages of one packet and of several; the bound is above and below the path MTU of 1024.
TEST(RcMessageMax, AMessageBeyondItIsALocalLengthError) {
  for (const std::uint32_t max : {500u, 3000u}) {
    Pair pair;
    connect_bounded(pair, max, 1u << 20);
    pair.a.post(*pair.qa, write(0, 0, max));
    pair.a.post(*pair.qa, read(0, 0, max));
    pair.a.post(*pair.qa, write(0, 0, max + 1));
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kLocalLength));
  }
}

TEST(RcMessageMax, AReadOrWriteOfThePeerBeyondItIsAnInvalidRequest) {
  for (const std::uint32_t max : {500u, 3000u}) {
    for (const bool reads : {false, true}) {
      // Frames within the process take the fast path.
      Pair pair({.trains = true});
      connect_bounded(pair, 1u << 20, max);
      const auto post = [&](std::uint32_t length) {
        pair.a.post(*pair.qa, reads ? read(0, 0, length) : write(0, 0, length));
        pair.drive();
      };
      post(max);
      post(max + 1);
      EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kRemoteInvalidRequest));
    }
  }
}

TEST(RcMessageMax, ASendOfThePeerBeyondItIsALengthErrorThoughTheReceiveHasRoom) {
  for (const std::uint32_t max : {500u, 3000u}) {
    for (const bool trains : {false, true}) {
      Pair pair({.trains = trains});
      connect_bounded(pair, 1u << 20, max);
      for (const auto length : {max, max + 1}) {
        pair.b.post_receive(*pair.qb, {End::sge(0x20000, 6000)});
        pair.a.post(*pair.qa, send(0, length));
        pair.drive();
      }
      EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kRemoteInvalidRequest));
      ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess, kLocalLength));
      EXPECT_EQ(pair.b.hca.receives.at(1).completion.reason, Reason::kSendTooLong);
    }
  }
}

// A middle of a train is bounded as well.
TEST(RcMessageMax, ASendOfManyPacketsEndsAtIt) {
  Pair pair({.trains = true});
  connect_bounded(pair, 1u << 20, 3000);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 0x8000)});
  pair.a.post(*pair.qa, send(0, 0x8000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalLength));
}

}  // namespace
}  // namespace softhca::rdma::test
