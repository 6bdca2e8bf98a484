#include "os/adaptive_poll.h"

#include <gtest/gtest.h>

namespace softhca::os {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kPing = 7;
constexpr unsigned kPong = 9;

class AdaptivePollTest : public ::testing::Test {
 protected:
  /// Polls in vain until the poll phase ends. True if it polled at all.
  bool look_in_vain() {
    bool looked = false;
    while (poll_.look(now_)) {
      looked = true;
      now_ += 1us;
    }
    return looked;
  }
  /// A message that arrives after a sleep.
  void message(unsigned source) {
    now_ += 50us;
    poll_.message(source, now_);
  }
  /// Counts the messages of the source, each followed by nothing, after which a poll phase began.
  unsigned looks_after(unsigned source, unsigned messages) {
    unsigned looks = 0;
    for (unsigned i = 0; i < messages; ++i) {
      message(source);
      looks += look_in_vain();
    }
    return looks;
  }

  util::Time now_{};
  AdaptivePoll poll_{20us};
};

TEST_F(AdaptivePollTest, LooksForAsLongAsItsWindowAfterAMessage) {
  EXPECT_FALSE(poll_.look(now_)) << "nothing came yet";
  poll_.message(kPing, now_);
  EXPECT_TRUE(poll_.look(now_ + 19us));
  EXPECT_FALSE(poll_.look(now_ + 20us));
  EXPECT_FALSE(poll_.look(now_ + 20us)) << "ended";
}

TEST_F(AdaptivePollTest, WorkOfTheFunctionsRestartsTheWindow) {
  poll_.message(kPing, now_);
  poll_.work(now_ + 15us);
  EXPECT_TRUE(poll_.look(now_ + 30us));
  EXPECT_FALSE(poll_.look(now_ + 35us));
  poll_.work(now_ + 40us);
  EXPECT_FALSE(poll_.look(now_ + 41us)) << "work alone begins none";
}

TEST_F(AdaptivePollTest, LookingInVainBecomesRare) {
  EXPECT_LE(looks_after(kPing, 100), 8u);
  looks_after(kPing, 10000);
  const auto looks = looks_after(kPing, 4 * AdaptivePoll::kRarest + 4);
  EXPECT_GE(looks, 3u) << "but does not end";
  EXPECT_LE(looks, 4u);
}

TEST_F(AdaptivePollTest, AFindMakesEveryMessageATryAgain) {
  looks_after(kPing, 100);
  while (message(kPing), !poll_.look(now_)) {
  }
  poll_.message(kPong, now_ + 3us);
  message(kPing);
  EXPECT_TRUE(poll_.look(now_));
}

TEST_F(AdaptivePollTest, EachSourceIsLearntForItself) {
  // A pong answers each ping during the poll phase. After the pong, the next ping comes only during
  // the sleep.
  unsigned finds = 0, vain = 0;
  for (int i = 0; i < 1000; ++i) {
    message(kPing);
    if (poll_.look(now_)) ++finds;
    now_ += 3us;
    poll_.message(kPong, now_);
    vain += look_in_vain();
  }
  EXPECT_EQ(finds, 1000u);
  EXPECT_LE(vain, 10u);
}

TEST_F(AdaptivePollTest, AWindowOfZeroNeverLooks) {
  AdaptivePoll never{0us};
  never.message(kPing, now_);
  EXPECT_FALSE(never.look(now_));
}

}  // namespace
}  // namespace softhca::os
