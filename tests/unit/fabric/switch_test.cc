#include "fabric/switch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocation_counter.h"
#include "recorder.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kC = 0x020000000003;
constexpr std::uint64_t kBroadcast = 0xffffffffffff;

class SwitchTest : public testing::Test {
 protected:
  struct Station {
    Station(Switch& owner, std::string name) : port(owner.create_port(std::move(name))) {
      port->set_receiver(&receiver);
    }
    std::unique_ptr<Port> port;
    Recorder receiver;
    std::vector<std::string> take() { return std::exchange(receiver.texts, {}); }
  };

  /// Lets the switch learn where each station is.
  void introduce() {
    a_.port->transmit(frame_of(kBroadcast, kA, "hello"));
    b_.port->transmit(frame_of(kBroadcast, kB, "hello"));
    c_.port->transmit(frame_of(kBroadcast, kC, "hello"));
    switch_.deliver(kAllFrames);
    for (auto* station : {&a_, &b_, &c_}) station->take();
  }

  Switch switch_{{.queue_frames_max = 100, .macs_max = 64}};
  Station a_{switch_, "a"};
  Station b_{switch_, "b"};
  Station c_{switch_, "c"};
};

TEST_F(SwitchTest, FloodsBroadcastToAllOtherPorts) {
  a_.port->transmit(frame_of(kBroadcast, kA, "x"));
  EXPECT_FALSE(switch_.deliver(kAllFrames));
  EXPECT_THAT(a_.take(), IsEmpty());
  EXPECT_THAT(b_.take(), ElementsAre("x"));
  EXPECT_THAT(c_.take(), ElementsAre("x"));
}

TEST_F(SwitchTest, DeliversWhatWasSentThoughItsMemoryGoes) {
  introduce();
  std::string memory = "payload of a";
  a_.port->transmit(frame_of(kB, kA, memory));
  b_.port->transmit(frame_of(kC, kB, "another"));
  EXPECT_GT(a_.port->settle(), 0) << "it is work";
  memory = "another guest";
  EXPECT_THAT(b_.take(), IsEmpty());
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("payload of a"));
  EXPECT_THAT(c_.take(), ElementsAre("another"));
}

/// A frame that refers to its payload instead of copying it.
wire::Frame referring(std::uint64_t to, std::uint64_t from, std::span<const std::byte> payload) {
  auto frame = frame_of(to, from, "");
  EXPECT_TRUE(frame.add_segment(payload));
  return frame;
}

TEST_F(SwitchTest, APortThatLosesMemoryCopiesItsOwnFramesOnly) {
  introduce();
  const std::vector<std::byte> memory(4096);
  for (int i = 0; i < 30; ++i) {
    b_.port->transmit(referring(kC, kB, memory));
    if (i % 10 == 0) a_.port->transmit(referring(kC, kA, memory));
  }
  const auto before = allocation_count();
  EXPECT_EQ(c_.port->settle(), 0) << "it has sent nothing";
  EXPECT_EQ(allocation_count(), before);
  const auto first = a_.port->settle();
  EXPECT_EQ(allocation_count(), before + (kAllocationsCount ? 3 : 0));
  EXPECT_GT(first, 3 * 4096 / 8);
  // A frame is copied once, and frames behind the last one are not checked.
  const auto again = a_.port->settle();
  EXPECT_LE(again, 24 * 5);
  EXPECT_EQ(allocation_count(), before + (kAllocationsCount ? 3 : 0));
  EXPECT_EQ(switch_.counters().dropped_no_memory, 0u);
  switch_.deliver(kAllFrames);
  EXPECT_EQ(a_.port->settle(), 0);
}

TEST_F(SwitchTest, FloodsUnknownUnicastAndMulticast) {
  a_.port->transmit(frame_of(kB, kA, "unknown"));
  a_.port->transmit(frame_of(0x01005e000001, kA, "multicast"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("unknown", "multicast"));
  EXPECT_THAT(c_.take(), ElementsAre("unknown", "multicast"));
}

TEST_F(SwitchTest, SendsUnicastToThePortThatTheStationWasLearnedAt) {
  introduce();
  a_.port->transmit(frame_of(kB, kA, "to b"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("to b"));
  EXPECT_THAT(c_.take(), IsEmpty());
}

TEST_F(SwitchTest, FollowsAStationThatMoves) {
  introduce();
  c_.port->transmit(frame_of(kA, kB, "b is here now"));
  a_.port->transmit(frame_of(kB, kA, "to b"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_THAT(c_.take(), ElementsAre("to b"));
}

TEST_F(SwitchTest, FollowsAStationThatReportsAllThatItHasMoved) {
  introduce();
  a_.port->transmit(frame_of(kB, kA, "to b"));
  switch_.deliver(kAllFrames);
  c_.port->transmit(frame_of(kBroadcast, kB, "b is here now"));
  a_.port->transmit(frame_of(kB, kA, "again"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("to b", "b is here now"));
  EXPECT_THAT(c_.take(), ElementsAre("again"));
}

// IEEE 802.1Q 8.6.1: a frame is not forwarded to the port that it came from.
TEST_F(SwitchTest, FiltersAFrameForAStationOnItsOwnPort) {
  a_.port->transmit(frame_of(kA, kA, "to myself"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(a_.take(), IsEmpty());
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(switch_.counters().filtered, 1u);
}

TEST_F(SwitchTest, ReturnsALoopedBackFrameToItsPortOnly) {
  introduce();
  a_.port->transmit(frame_of(kB, kA, "before"));
  a_.port->loop_back(frame_of(kB, kA, "mine"), 7);
  a_.port->loop_back(frame_of(kBroadcast, kA, "and mine"), 8);
  const auto last = a_.port->transmit(frame_of(kB, kA, "after"));
  EXPECT_EQ(a_.port->released(), last - 4);
  switch_.deliver(kAllFrames);
  EXPECT_EQ(a_.port->released(), last);
  EXPECT_THAT(a_.receiver.looped, ElementsAre("mine 7", "and mine 8"));
  EXPECT_THAT(a_.take(), IsEmpty());
  EXPECT_THAT(b_.take(), ElementsAre("before", "after"));
  EXPECT_THAT(c_.take(), IsEmpty());
  EXPECT_EQ(switch_.counters().looped_back, 2u);
}

// The switch learns no source from a looped-back frame, because the frame crossed no port.
TEST_F(SwitchTest, LearnsNothingFromWhatIsLoopedBack) {
  a_.port->loop_back(frame_of(kB, kC, "mine"), 0);
  b_.port->transmit(frame_of(kC, kB, "to c"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(a_.take(), ElementsAre("to c")) << "flooded";
}

TEST_F(SwitchTest, DeliversNoMoreThanTheBudget) {
  introduce();
  for (const char* text : {"1", "2", "3"}) a_.port->transmit(frame_of(kB, kA, text));
  EXPECT_TRUE(switch_.deliver(2));
  EXPECT_THAT(b_.take(), ElementsAre("1", "2"));
  EXPECT_FALSE(switch_.deliver(2));
  EXPECT_THAT(b_.take(), ElementsAre("3"));
  EXPECT_FALSE(switch_.deliver(2));
}

TEST_F(SwitchTest, AnswersAreQueuedBehindNotDeliveredInside) {
  introduce();
  b_.receiver.then = [&](const wire::Frame&) {
    b_.port->transmit(frame_of(kA, kB, "answer"));
    EXPECT_TRUE(switch_.deliver(kAllFrames)) << "a call from a receiver does nothing";
    EXPECT_THAT(a_.receiver.texts, IsEmpty());
  };
  a_.port->transmit(frame_of(kB, kA, "1"));
  a_.port->transmit(frame_of(kB, kA, "2"));
  EXPECT_FALSE(switch_.deliver(kAllFrames));
  EXPECT_THAT(b_.take(), ElementsAre("1", "2"));
  EXPECT_THAT(a_.take(), ElementsAre("answer", "answer"));
}

TEST_F(SwitchTest, DropsAndCountsBeyondTheQueuesLimit) {
  introduce();
  for (int i = 0; i != 130; ++i) a_.port->transmit(frame_of(kB, kA, "x"));
  switch_.deliver(kAllFrames);
  EXPECT_EQ(b_.take().size(), 100u);
  EXPECT_EQ(switch_.counters().dropped_queue_full, 30u);
}

TEST_F(SwitchTest, DropsFramesShorterThanAnEthernetHeader) {
  wire::Frame frame;
  (void)frame.resize_head(13);
  a_.port->transmit(frame);
  switch_.deliver(kAllFrames);
  EXPECT_EQ(switch_.counters().dropped_malformed, 1u);
}

TEST_F(SwitchTest, CountsFramesForAPortWithoutReceiver) {
  introduce();
  b_.port->set_receiver(nullptr);
  a_.port->transmit(frame_of(kB, kA, "x"));
  switch_.deliver(kAllFrames);
  EXPECT_EQ(switch_.counters().dropped_no_receiver, 1u);
}

// The memory that its frames refer to may disappear with the device.
TEST_F(SwitchTest, ADestroyedPortTakesItsQueuedFramesWithIt) {
  introduce();
  a_.port->transmit(frame_of(kB, kA, "x"));
  c_.port->transmit(frame_of(kB, kC, "y"));
  a_.port.reset();
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("y"));
  EXPECT_EQ(switch_.counters().dropped_port_gone, 1u);
  b_.port->transmit(frame_of(kA, kB, "where is a?"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(c_.take(), ElementsAre("where is a?")) << "a is forgotten, so it is flooded";
}

TEST_F(SwitchTest, PortsMayComeAndGoDuringDelivery) {
  std::unique_ptr<Station> late;
  b_.receiver.then = [&](const wire::Frame&) {
    if (!late) late = std::make_unique<Station>(switch_, "late");
    a_.port.reset();  // the frame being flooded came from this port
  };
  a_.port->transmit(frame_of(kBroadcast, kA, "1"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(b_.take(), ElementsAre("1"));
  EXPECT_THAT(c_.take(), IsEmpty()) << "its memory went with its port";
  b_.receiver.then = nullptr;
  b_.port->transmit(frame_of(kBroadcast, kB, "2"));
  switch_.deliver(kAllFrames);
  EXPECT_THAT(late->take(), ElementsAre("2"));
}

TEST_F(SwitchTest, AFrameIsReleasedAfterTheLastReceiverHasReadIt) {
  std::string text = "text";
  std::vector<std::uint64_t> released;
  b_.receiver.then = [&](const wire::Frame&) { released.push_back(a_.port->released()); };
  c_.receiver.then = b_.receiver.then;
  EXPECT_EQ(a_.port->transmit(frame_of(kBroadcast, kA, text)), 1u);
  EXPECT_EQ(b_.port->transmit(frame_of(kBroadcast, kB, text)), 1u) << "each port counts its own";
  EXPECT_EQ(a_.port->transmit(frame_of(kBroadcast, kA, text)), 2u);
  EXPECT_EQ(a_.port->released(), 0u);
  switch_.deliver(1);
  EXPECT_THAT(released, ElementsAre(0, 0));
  EXPECT_EQ(a_.port->released(), 1u);
  EXPECT_EQ(b_.port->released(), 0u);
  switch_.deliver(kAllFrames);
  EXPECT_EQ(a_.port->released(), 2u);
  EXPECT_EQ(b_.port->released(), 1u);
}

TEST(Switch, ADroppedFrameIsReleased) {
  Switch full(Switch::Options{.queue_frames_max = 1});
  const auto port = full.create_port("port");
  EXPECT_EQ(port->transmit(frame_of(2, 1, "in")), 1u);
  EXPECT_EQ(port->transmit(frame_of(2, 1, "dropped")), 1u);
  EXPECT_EQ(port->released(), 0u) << "the first one still refers to memory";
  full.deliver(1);
  EXPECT_EQ(port->released(), 1u);
}

TEST_F(SwitchTest, AllocatesNothingInSteadyState) {
  introduce();
  class Counter : public Receiver {
   public:
    void handle_frame(const wire::Frame&) override { ++frames; }
    void handle_loopback(const wire::Frame&, std::uint32_t) override {}
    int frames = 0;
  } counter;
  b_.port->set_receiver(&counter);
  auto frame = frame_of(kB, kA, "");
  (void)frame.own_payload(64);
  const auto burst = [&] {
    for (int i = 0; i != 50; ++i) a_.port->transmit(frame);
    switch_.deliver(kAllFrames);
  };
  burst();
  const auto before = allocation_count();
  for (int i = 0; i != 100; ++i) burst();
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(counter.frames, 101 * 50);
}

TEST(MacTable, HoldsAtLeastAsManyAsPromisedOnAverageAndNeverMoreThanItsSize) {
  MacTable table(64);
  for (std::uint64_t i = 1; i <= 10000; ++i) {
    const auto mac = wire::MacAddress::from_u64(0x020000000000 + i);
    table.learn(mac, static_cast<std::uint32_t>(i));
    ASSERT_EQ(table.find(mac), i) << "the last heard is always known";
  }
  std::size_t known = 0;
  for (std::uint64_t i = 1; i <= 10000; ++i) {
    known += table.find(wire::MacAddress::from_u64(0x020000000000 + i)).has_value();
  }
  EXPECT_LE(known, 64u);
  EXPECT_GE(known, 32u);
}

// IEEE 802.1Q 8.7: a group address belongs to no station, so it must not take a table entry.
TEST(MacTable, LearnsNoGroupAddresses) {
  MacTable table(64);
  for (const auto mac : {std::uint64_t{0x01005e000001}, std::uint64_t{0}}) {
    table.learn(wire::MacAddress::from_u64(mac), 1);
    EXPECT_FALSE(table.find(wire::MacAddress::from_u64(mac)));
  }
}

TEST(MacTable, ForgetsAPort) {
  MacTable table(16);
  table.learn(wire::MacAddress::from_u64(kA), 1);
  table.learn(wire::MacAddress::from_u64(kB), 2);
  table.forget_port(1);
  EXPECT_FALSE(table.find(wire::MacAddress::from_u64(kA)));
  EXPECT_EQ(table.find(wire::MacAddress::from_u64(kB)), 2u);
}

TEST(FrameQueue, KeepsOrderWhileItGrowsAndWraps) {
  FrameQueue queue(1000);
  std::uint32_t in = 0, out = 0;
  for (int round = 0; round != 200; ++round) {
    for (int i = 0; i != 7; ++i) ASSERT_TRUE(queue.push({}, in++));
    for (int i = 0; i != 4; ++i, queue.pop()) ASSERT_EQ(queue.front().port, out++);
  }
  for (; !queue.empty(); queue.pop()) ASSERT_EQ(queue.front().port, out++);
  EXPECT_EQ(in, out);
}

TEST(FrameQueue, TheFrontStaysWhereItIsWhileOthersArePushed) {
  FrameQueue queue(1000);
  ASSERT_TRUE(queue.push({}, 42));
  auto* front = &queue.front();
  for (int i = 0; i != 900; ++i) ASSERT_TRUE(queue.push({}, 0));
  EXPECT_EQ(&queue.front(), front);
  EXPECT_EQ(front->port, 42u);
}

}  // namespace
}  // namespace softhca::fabric
