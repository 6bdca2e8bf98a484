#include "fabric/ring_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "fabric/switch.h"
#include "recorder.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kRingCapacity = os::SharedRing::kCapacityMin;

/// Two switches, as in two processes, each with a station, joined by two rings.
class RingPortTest : public testing::Test {
 protected:
  struct Side {
    Side(os::SharedRing out, os::SharedRing in, std::string name)
        : station(fabric.create_port(std::move(name))),
          link(std::make_unique<RingPort>(fabric.create_port("link"), std::move(out),
                                          std::move(in))) {
      station->set_receiver(&receiver);
    }
    ~Side() { link.reset(); }
    void deliver() {
      link->receive(kAllFrames);
      fabric.deliver(kAllFrames);
    }
    std::vector<std::string> take() { return std::exchange(receiver.texts, {}); }

    Switch fabric;
    std::unique_ptr<Port> station;
    Recorder receiver;
    std::unique_ptr<RingPort> link;
  };

  static os::SharedRing attach(const os::SharedRing& ring) {
    return os::SharedRing::attach(ring.fd()).value();
  }

  os::SharedRing there_ = os::SharedRing::create(kRingCapacity).value();
  os::SharedRing back_ = os::SharedRing::create(kRingCapacity).value();
  Side a_{attach(there_), attach(back_), "a"};
  Side b_{attach(back_), attach(there_), "b"};
};

TEST_F(RingPortTest, FramesArriveOnTheOtherSideAsTheyWereSent) {
  a_.station->transmit(frame_of(kB, kA, "first"));
  a_.station->transmit(frame_of(kB, kA, "second"));
  a_.deliver();
  b_.deliver();
  EXPECT_THAT(b_.take(), ElementsAre("first", "second"));
  b_.station->transmit(frame_of(kA, kB, "answer"));
  b_.deliver();
  a_.deliver();
  EXPECT_THAT(a_.take(), ElementsAre("answer"));
  EXPECT_EQ(a_.link->counters().sent, 2u);
  EXPECT_EQ(b_.link->counters().received, 2u);
}

TEST_F(RingPortTest, AFrameThatIsLongerThanAHeadArrivesWhole) {
  const std::string text(9000, 'j');
  a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  b_.deliver();
  EXPECT_THAT(b_.take(), ElementsAre(text));
}

TEST_F(RingPortTest, AFullRingDropsAndCountsAndGoesOnWhenItIsRead) {
  const std::string text(9000, 'x');
  for (int i = 0; i < 20; ++i) a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  const auto& counters = a_.link->counters();
  EXPECT_EQ(counters.sent, kRingCapacity / 9016);
  EXPECT_EQ(counters.sent + counters.dropped_full, 20u);
  b_.deliver();
  EXPECT_EQ(b_.take().size(), counters.sent);
  b_.link->settle();
  a_.station->transmit(frame_of(kB, kA, "more"));
  a_.deliver();
  b_.deliver();
  EXPECT_THAT(b_.take(), ElementsAre("more"));
  EXPECT_FALSE(a_.link->broken() || b_.link->broken());
}

TEST_F(RingPortTest, TheRingIsNotUsedAgainBeforeItsFrameIsDelivered) {
  constexpr std::size_t kFit = 8;
  const std::string text(15000, 'x');
  for (std::size_t i = 0; i < kFit; ++i) a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  EXPECT_EQ(b_.link->receive(kAllFrames), kFit);
  b_.link->settle();  // the frames wait in b's switch
  a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  EXPECT_EQ(a_.link->counters().dropped_full, 1u);
  b_.fabric.deliver(2);
  b_.link->settle();
  b_.fabric.deliver(kAllFrames);
  EXPECT_EQ(b_.take(), std::vector<std::string>(kFit, text));
  b_.link->settle();
  a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  EXPECT_EQ(a_.link->counters().dropped_full, 1u);
}

TEST_F(RingPortTest, FramesThatNeverStopToFlowFindRoomNevertheless) {
  const std::string text(9000, 'x');
  for (int i = 0; i < 200; ++i) {
    a_.station->transmit(frame_of(kB, kA, text));
    a_.deliver();
    b_.link->receive(1);
    if (i % 2 == 1) b_.fabric.deliver(2);  // one frame always waits
  }
  EXPECT_EQ(a_.link->counters().dropped_full, 0u);
}

TEST_F(RingPortTest, AFrameThatDoesNotFitARecordIsDroppedAndCounted) {
  const std::string text(os::SharedRing::kRecordMax, 'x');
  a_.station->transmit(frame_of(kB, kA, text));
  a_.deliver();
  b_.deliver();
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.link->counters().dropped_unfit, 1u);
}

TEST_F(RingPortTest, ASleeperIsToBeWokenWhenSomethingWasSent) {
  EXPECT_TRUE(b_.link->prepare_to_sleep());
  EXPECT_FALSE(a_.link->settle()) << "there is nothing for it";
  a_.station->transmit(frame_of(kB, kA, "x"));
  a_.deliver();
  EXPECT_TRUE(a_.link->settle());
  EXPECT_FALSE(b_.link->prepare_to_sleep());
}

TEST_F(RingPortTest, AnotherProcessThatBreaksTheRulesEndsItsLinkAndNothingElse) {
  const std::uint64_t nonsense = ~std::uint64_t{0} - 7;
  ASSERT_EQ(::pwrite(there_.fd(), &nonsense, sizeof nonsense, 0), 8);
  b_.deliver();
  EXPECT_TRUE(b_.link->broken());
  const auto station = b_.fabric.create_port("c");
  Recorder receiver;
  station->set_receiver(&receiver);
  b_.station->transmit(frame_of(kA, kB, "to c"));
  b_.deliver();
  EXPECT_THAT(receiver.texts, ElementsAre("to c"));
}

TEST_F(RingPortTest, ALinkThatIsBrokenOneWayIsBrokenTheOtherWayToo) {
  const std::uint64_t nonsense = ~std::uint64_t{0} - 7;
  ASSERT_EQ(::pwrite(there_.fd(), &nonsense, sizeof nonsense, 0), 8);
  b_.deliver();
  b_.station->transmit(frame_of(kA, kB, "x"));
  b_.deliver();
  EXPECT_EQ(b_.link->counters().dropped_full, 1u);
  EXPECT_TRUE(b_.link->prepare_to_sleep()) << "its frames are not polled for";
}

TEST_F(RingPortTest, TheHeadOfAFrameDoesNotChangeWhileItWaits) {
  a_.station->transmit(frame_of(kB, kA, "before"));
  a_.deliver();
  EXPECT_EQ(b_.link->receive(kAllFrames), 1u);
  const std::string after(20, 'z');
  ASSERT_GT(::pwrite(there_.fd(), after.data(), after.size(), 4096 + 8), 0);
  b_.fabric.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("before"));
}

TEST_F(RingPortTest, TheFrameThatWasCheckedIsTransmitted) {
  a_.station->transmit(frame_of(kB, kA, "before"));
  a_.deliver();
  const auto look = [this](const wire::Frame&) {
    const std::string after(20, 'z');
    EXPECT_GT(::pwrite(there_.fd(), after.data(), after.size(), 4096 + 8), 0);
    return Verdict::kGoes;
  };
  EXPECT_EQ(b_.link->receive(kAllFrames, look), 1u);
  b_.fabric.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("before"));
}

TEST_F(RingPortTest, AFrameThatWaitsComesAgainAndNothingBehindItBefore) {
  for (const auto* text : {"first", "second", "third"}) {
    a_.station->transmit(frame_of(kB, kA, text));
  }
  a_.deliver();
  unsigned seen = 0;
  const auto judge = [&seen](const wire::Frame&) {
    return ++seen == 2 ? Verdict::kWaits : Verdict::kGoes;
  };
  EXPECT_EQ(b_.link->receive(kAllFrames, judge), 1u);
  b_.fabric.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("first"));
  EXPECT_FALSE(b_.link->prepare_to_sleep());
  EXPECT_EQ(b_.link->receive(kAllFrames, judge), 2u);
  b_.fabric.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("second", "third"));
  EXPECT_EQ(seen, 4u);
  EXPECT_TRUE(b_.link->prepare_to_sleep());
}

}  // namespace
}  // namespace softhca::fabric
