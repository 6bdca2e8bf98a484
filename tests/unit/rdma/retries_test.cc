// Retry counters of a requester (IBTA 9.7.5.2.8, 9.7.6.1.3), and why it sends nothing.

#include "rdma/retries.h"

#include <gtest/gtest.h>

#include "rdma/send_pause.h"

namespace softhca::rdma {
namespace {

using namespace std::chrono_literals;

QpAttributes allowing(std::uint8_t retries, std::uint8_t rnr_retries) {
  QpAttributes attributes;
  attributes.retry_count = retries;
  attributes.rnr_retry = rnr_retries;
  return attributes;
}

TEST(Retries, AreLeftAgainWhenThePeerAnswers) {
  const auto two = allowing(2, 1);
  Retries retries;
  for (unsigned answer = 0; answer < 3; ++answer) {
    retries.refresh(two);
    EXPECT_TRUE(retries.use());
    EXPECT_TRUE(retries.use());
    EXPECT_FALSE(retries.use());
    EXPECT_TRUE(retries.use_rnr(two));
    EXPECT_FALSE(retries.use_rnr(two));
  }
}

TEST(Retries, AnRnrNakRefreshesThoseOfLossesOnly) {
  const auto one = allowing(1, 1);
  Retries retries;
  retries.refresh(one);
  EXPECT_TRUE(retries.use());
  EXPECT_TRUE(retries.use_rnr(one));
  retries.refresh_losses(one);
  EXPECT_EQ(retries.left(), 1u);
  EXPECT_EQ(retries.rnr_left(), 0u);
}

TEST(Retries, RnrRetrySevenHasNoEnd) {
  const auto forever = allowing(0, spec::infiniband::kRetryForever);
  Retries retries;
  retries.refresh(forever);
  for (unsigned i = 0; i < 20; ++i) EXPECT_TRUE(retries.use_rnr(forever)) << i;
}

TEST(Retries, OneTimeoutInSoManyCounts) {
  Retries retries;
  for (unsigned round = 0; round < 2; ++round) {
    EXPECT_FALSE(retries.counts_timeout(3));
    EXPECT_FALSE(retries.counts_timeout(3));
    EXPECT_TRUE(retries.counts_timeout(3));
  }
}

TEST(Retries, APsnTriggersOneByAnImpliedNak) {
  Retries retries;
  EXPECT_TRUE(retries.begin_implied(5));
  EXPECT_FALSE(retries.begin_implied(5));
  EXPECT_TRUE(retries.begin_implied(6));
  retries.forget_implied();
  EXPECT_TRUE(retries.begin_implied(6));
}

TEST(Retries, TheTimeoutHasALowerBound) {
  auto short_one = allowing(0, 0);
  short_one.ack_timeout = 1;
  Retries retries;
  retries.set_timeout(short_one, 1ms);
  EXPECT_EQ(retries.timeout(), util::Duration(1ms));
  short_one.ack_timeout = 0;
  retries.set_timeout(short_one, 1ms);
  EXPECT_EQ(retries.timeout(), util::Duration{}) << "0 means never";
}

TEST(SendPause, IsOverWhenNoReasonIsLeft) {
  SendPause pause;
  EXPECT_TRUE(pause.over());
  pause.begin_timer();
  pause.begin_page(7);
  EXPECT_EQ(pause.fault_entry(), 7u);
  pause.end_timer();
  EXPECT_FALSE(pause.for_timer());
  EXPECT_TRUE(pause.for_page());
  EXPECT_FALSE(pause.over());
  pause.end_page();
  EXPECT_TRUE(pause.over());
}

TEST(SendPause, ARateRepeatsNothing) {
  SendPause pause;
  pause.begin_rate();
  EXPECT_FALSE(pause.over());
  EXPECT_FALSE(pause.repeats());
  pause.begin_timer();
  EXPECT_TRUE(pause.repeats());
  pause.end_timer();
  EXPECT_TRUE(pause.over());
}

}  // namespace
}  // namespace softhca::rdma
