// The string that gives the programs of a run their frame loss: a probability and a seed.
#include "door/card/frame_loss.h"

#include <gtest/gtest.h>

namespace softhca::door {
namespace {

TEST(DoorFrameLoss, IsAProbabilityAndASeed) {
  const auto loss = FrameLoss::parse("0.25,7");
  EXPECT_EQ(loss.probability, 0.25);
  EXPECT_EQ(loss.seed, 7U);
  EXPECT_EQ(FrameLoss::parse("1e-05,18446744073709551615").probability, 1e-5);
}

TEST(DoorFrameLoss, AnUnknownWordLosesNothing) {
  for (const auto* const word :
       {"", "0.5", "0.5,", "0.5,x", "0.5,1,", ",1", "1.5,1", "-1,1", "nan,1", "0.5;1"}) {
    EXPECT_EQ(FrameLoss::parse(word).probability, 0) << word;
  }
}

}  // namespace
}  // namespace softhca::door
