// A peer without a receive for the first packet of a burst. It answers that packet, and silently
// drops the later ones until the first comes again (IBTA 9.7.5.2.8).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using enum WorkStatus;

class RnrBurst : public ::testing::Test {
 protected:
  RnrBurst() {
    pair.adjust = [](QpAttributes& attributes) { attributes.min_rnr_timer = 1; };  // 10 us
    pair.connect();
  }
  Pair pair;
};

TEST_F(RnrBurst, PacketsBehindTheRefusedRequestAreDroppedHoweverLate) {
  std::vector<std::vector<std::byte>> frames;
  pair.a.on_transmit = [&](End&, const wire::Frame& frame) {
    frames.emplace_back(frame.size());
    frame.copy_to(frames.back());
  };
  for (unsigned i = 0; i < 20; ++i) pair.a.post(*pair.qa, send(0, 64));
  pair.a.run(pair.now);
  ASSERT_EQ(frames.size(), 20u);
  for (const auto& frame : frames) {
    pair.b.transport.handle_frame(wire::Frame::from_bytes(frame), pair.now);
    pair.b.run(pair.now);
    pair.now += 1ms;
  }
  EXPECT_EQ(pair.b.counters.rnr_naks_sent, 1u);
  EXPECT_EQ(pair.b.counters.out_of_sequence, 19u);
  EXPECT_EQ(pair.b.transmitted, 1u) << "one RNR NAK, and then silence (IBTA 9.7.5.2.8)";
}

TEST_F(RnrBurst, NaksOfWhatIsLateDoNotUseUpRetriesWhileTheRequesterWaits) {
  pair.keep_sent = true;
  pair.a.post(*pair.qa, send(0, 64));
  pair.a.post(*pair.qa, send(0, 64));
  std::vector<std::byte> answer;
  pair.b.on_transmit = [&](End&, const wire::Frame& frame) {
    answer.resize(frame.size());
    frame.copy_to(answer);
  };
  pair.drive_for(5us);
  auto parsed = wire::IbPacket::parse(wire::Frame::from_bytes(answer));
  ASSERT_TRUE(parsed);
  const auto give = [&](wire::AethType type, std::uint8_t value) {
    wire::ExtHeaders ext;
    ext.aeth = {type, value, wire::Msn(0)};
    wire::Frame frame;
    wire::IbHeader(parsed->address).emit(parsed->bth, ext, 0, frame);
    pair.a.transport.handle_frame(frame, pair.now);
  };
  // More rounds than retry_cnt: each has an RNR NAK and a late NAK.
  for (unsigned round = 0; round < 20; ++round) {
    give(wire::AethType::RNR_NAK, 1);
    for (unsigned i = 0; i < 20; ++i) give(wire::AethType::NAK, 0);
    pair.now += 20us;
    pair.a.run(pair.now);
    give(wire::AethType::NAK, 0);
    pair.a.run(pair.now);
    ASSERT_EQ(pair.qa->state(), QpState::kRts) << round;
  }
  EXPECT_TRUE(pair.a.hca.sends.empty());
}

TEST_F(RnrBurst, APeerThatIsSlowToPostReceivesGetsEverything) {
  // The wire's latency is far longer than the RNR timer, so each burst arrives in pieces.
  pair.script = [n = 0u](const wire::IbPacket&, bool to_b) mutable {
    return to_b && ++n % 3 == 0 ? Fate::kLate : Fate::kDeliver;
  };
  pair.options.lateness = 2ms;
  auto attributes = pair.qa->attributes();
  attributes.ack_timeout = 12;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  for (unsigned i = 0; i < 100; ++i) pair.a.post(*pair.qa, send(64 * i, 64));
  for (unsigned i = 0; i < 100; ++i) {
    pair.drive_for(1ms);
    ASSERT_EQ(pair.qa->state(), QpState::kRts) << i;
    pair.b.post_receive(*pair.qb, {End::sge(0x20000 + 64 * i, 64)});
  }
  pair.drive_for(1000ms);
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(100, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 6400), 0);
}

}  // namespace
}  // namespace softhca::rdma::test
