// Trains (wire/train.h) in a switch. Every counter counts packets.

#include "wire/train.h"

#include <gtest/gtest.h>

#include <vector>

#include "fabric/switch.h"
#include "fabric/tap.h"
#include "recorder.h"
#include "wire/ib_header.h"

namespace softhca::fabric {
namespace {

constexpr std::uint16_t kTrainMtu = 256;

wire::IbAddress address(std::uint64_t from, std::uint64_t to) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(from);
  address.destination_mac = wire::MacAddress::from_u64(to);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  address.udp_source_port = 0xc000;
  return address;
}

/// Records the PSNs that arrive, and the frame that carried each.
class TrainStation final : public Receiver {
 public:
  TrainStation(Switch& owner, std::string name, bool trains)
      : port(owner.create_port(std::move(name))), trains_(trains) {
    port->set_receiver(this);
  }
  void handle_frame(const wire::Frame& frame) override {
    lengths.push_back(frame.packets());
    wire::for_each_packet(frame, [this](const wire::Frame& packet) {
      psns.push_back(wire::IbPacket::parse(packet)->bth.psn.value());
      last_byte = packet.segments().empty() ? std::byte{0} : packet.segments().back().back();
    });
  }
  void handle_loopback(const wire::Frame& frame, std::uint32_t) override { handle_frame(frame); }
  bool takes_trains() const override { return trains_; }

  std::unique_ptr<Port> port;
  std::vector<unsigned> lengths;
  std::vector<std::uint32_t> psns;
  std::byte last_byte{};

 private:
  const bool trains_;
};

class TrainsTest : public testing::Test {
 protected:
  /// A train of MIDDLE packets from PSN `first`.
  wire::Frame train(std::uint32_t first, unsigned count) {
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
    bth.psn = wire::Psn(first);
    wire::Frame frame;
    wire::IbHeader(address(kA, kB)).emit(bth, {}, kTrainMtu, frame);
    frame.set_train({static_cast<std::uint16_t>(count), kTrainMtu, 0, false});
    EXPECT_TRUE(frame.add_segment(std::span(memory_).first(count * kTrainMtu)));
    return frame;
  }
  void introduce(TrainStation& b) {
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_ACKNOWLEDGE;
    wire::Frame frame;
    wire::IbHeader(address(kB, 0xffffffffffff)).emit(bth, {}, 0, frame);
    b.port->transmit(frame);
    switch_.deliver(kAllFrames);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(100 * kTrainMtu, std::byte{1});
  Switch switch_{{.queue_frames_max = 20, .macs_max = 64}};
  TrainStation a_{switch_, "a", true};
};

std::vector<std::uint32_t> range(std::uint32_t first, std::uint32_t end) {
  std::vector<std::uint32_t> numbers;
  for (auto n = first; n != end; ++n) numbers.push_back(n);
  return numbers;
}

TEST_F(TrainsTest, AReceiverOfTrainsGetsThemWhole) {
  TrainStation b(switch_, "b", true);
  introduce(b);
  a_.port->transmit(train(10, 9));
  EXPECT_FALSE(switch_.deliver(kAllFrames));
  EXPECT_EQ(b.lengths, std::vector<unsigned>{9});
  EXPECT_EQ(b.psns, range(10, 19));
  EXPECT_EQ(switch_.counters().delivered, 1u + 9u) << "with what introduced b";
}

TEST_F(TrainsTest, AReceiverOfPacketsGetsATrainInPackets) {
  TrainStation b(switch_, "b", false);
  introduce(b);
  a_.port->transmit(train(10, 9));
  switch_.deliver(kAllFrames);
  EXPECT_EQ(b.lengths, std::vector<unsigned>(9, 1));
  EXPECT_EQ(b.psns, range(10, 19));
}

TEST_F(TrainsTest, ABudgetIsOfPackets) {
  TrainStation b(switch_, "b", false);
  introduce(b);
  const auto number = a_.port->transmit(train(10, 9));
  const auto next = a_.port->transmit(train(19, 3));
  EXPECT_TRUE(switch_.deliver(4));
  EXPECT_EQ(b.psns, range(10, 14));
  EXPECT_LT(a_.port->released(), number) << "the rest refers to its memory";
  EXPECT_TRUE(switch_.deliver(6));
  EXPECT_EQ(b.psns, range(10, 20));
  EXPECT_EQ(a_.port->released(), number);
  EXPECT_FALSE(switch_.deliver(2));
  EXPECT_EQ(b.psns, range(10, 22));
  EXPECT_EQ(a_.port->released(), next);
}

TEST_F(TrainsTest, AWholeTrainCostsOneOfTheBudget) {
  TrainStation b(switch_, "b", true);
  introduce(b);
  a_.port->transmit(train(10, 1));
  switch_.deliver(1);
  a_.port->transmit(train(11, 8));
  a_.port->transmit(train(19, 9));
  EXPECT_TRUE(switch_.deliver(1));
  EXPECT_EQ(b.lengths, (std::vector<unsigned>{1, 8}));
  EXPECT_FALSE(switch_.deliver(1));
  EXPECT_EQ(b.psns, range(10, 28));
}

TEST_F(TrainsTest, AFullQueueTakesThePacketsThatItHasRoomFor) {
  TrainStation b(switch_, "b", true);
  introduce(b);
  a_.port->transmit(train(0, 15));
  a_.port->transmit(train(15, 9));
  a_.port->transmit(train(24, 2));
  EXPECT_EQ(switch_.counters().dropped_queue_full, 6u);
  switch_.deliver(kAllFrames);
  EXPECT_EQ(b.psns, range(0, 20));
}

TEST_F(TrainsTest, TheRestOfATrainKeepsTheMemoryThatItCopied) {
  TrainStation b(switch_, "b", false);
  introduce(b);
  a_.port->transmit(train(10, 9));
  switch_.deliver(4);
  const auto one = a_.port->settle();
  EXPECT_GE(one, static_cast<std::int64_t>(5 * kTrainMtu / 4));
  EXPECT_EQ(a_.port->settle(), 5 * 5) << "copied once; looked at as five packets";
  std::fill(memory_.begin(), memory_.end(), std::byte{2});
  switch_.deliver(2);
  EXPECT_EQ(b.last_byte, std::byte{1});
  switch_.deliver(kAllFrames);
  EXPECT_EQ(b.last_byte, std::byte{1});
  EXPECT_EQ(b.psns, range(10, 19));
}

TEST_F(TrainsTest, ATapSeesPackets) {
  class Counting final : public Tap {
   public:
    void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
    void handle_frame(std::uint32_t, const wire::Frame& frame) override {
      EXPECT_EQ(frame.packets(), 1u);
      ++packets;
    }
    unsigned packets = 0;
  } tap;
  TrainStation b(switch_, "b", true);
  introduce(b);
  switch_.set_tap(&tap);
  a_.port->transmit(train(10, 9));
  switch_.deliver(kAllFrames);
  EXPECT_EQ(tap.packets, 9u);
  EXPECT_EQ(b.lengths, std::vector<unsigned>{9});
  switch_.set_tap(nullptr);
}

TEST_F(TrainsTest, ATrainWithoutAReceiverCountsInPackets) {
  a_.port->set_receiver(nullptr);
  {
    TrainStation b(switch_, "b", true);
    introduce(b);
    b.port->set_receiver(nullptr);
    a_.port->transmit(train(10, 9));
    switch_.deliver(kAllFrames);
    // The tenth drop is the frame that introduced b to a, which no longer has a receiver.
    EXPECT_EQ(switch_.counters().dropped_no_receiver, 10u);
  }
}

}  // namespace
}  // namespace softhca::fabric
