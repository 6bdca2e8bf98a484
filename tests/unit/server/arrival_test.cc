// Received frames on their way into a switch (server/arrival.h).
#include "server/arrival.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ethernet/checksum_offload.h"
#include "ethernet/packet_info.h"
#include "fabric/switch.h"
#include "tcp_frame.h"
#include "util/endian.h"
#include "wire/frame_bytes.h"

namespace softhca::server {
namespace {

using Bytes = std::vector<std::byte>;
using Rest = os::FrameFile::Rest;

/// Another station of the switch, which keeps what arrives.
class CheckingStation final : public fabric::Receiver {
 public:
  explicit CheckingStation(fabric::Switch& network) : port_(network.create_port("station")) {
    port_->set_receiver(this);
  }
  ~CheckingStation() override { port_->set_receiver(nullptr); }
  void handle_frame(const wire::Frame& frame) override {
    frames.push_back(wire::bytes_of(frame));
    const auto from_wire = wire::Frame::from_bytes(frames.back());
    const auto checked = ethernet::check(from_wire, ethernet::classify(from_wire));
    all_checksums_ok = all_checksums_ok && checked.l3_ok && checked.l4_ok;
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

  std::vector<Bytes> frames;
  bool all_checksums_ok = true;

 private:
  std::unique_ptr<fabric::Port> port_;
};

class ArrivalTest : public testing::Test {
 protected:
  Arrival arrive(Bytes frame, const Rest& rest) {
    const auto arrival = transmit_arrival(frame, rest, *port_);
    network_.deliver(1000);
    return arrival;
  }
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> port_ = network_.create_port("host");
  CheckingStation station_{network_};
};

TEST_F(ArrivalTest, AWholeFrameArrivesUnchanged) {
  for (const std::size_t size : {14u, 60u, 192u, 193u, 1514u, 9014u}) {
    Bytes frame(size, std::byte{7});
    EXPECT_EQ(arrive(frame, {}).packets, 1u);
    EXPECT_EQ(station_.frames.back(), frame);
  }
}

TEST_F(ArrivalTest, AMissingChecksumIsInserted) {
  const auto frame = tcp_frame(700, kTcpPush, Checksums::kPseudoHeader);
  EXPECT_EQ(arrive(frame, {.checksum = true, .start = kTcpAt, .offset = 16}).packets, 1u);
  EXPECT_THAT(station_.frames, testing::ElementsAre(tcp_frame(700, kTcpPush, Checksums::kMade)));
  EXPECT_TRUE(station_.all_checksums_ok);
}

TEST_F(ArrivalTest, AChecksumOfZeroIsSentAsOnes) {
  Bytes frame(60);
  frame[20] = frame[21] = std::byte{0xff};
  EXPECT_EQ(arrive(frame, {.checksum = true, .start = 20, .offset = 6}).packets, 1u);
  EXPECT_EQ(util::load_be16(station_.frames.at(0).data() + 26), 0xffff);
}

TEST_F(ArrivalTest, AChecksumOutsideTheFrameIsRefused) {
  const Bytes frame(60);
  for (const auto& rest : {Rest{.checksum = true, .start = 60, .offset = 0},
                           Rest{.checksum = true, .start = 30, .offset = 29},
                           Rest{.checksum = true, .start = 0xffff, .offset = 0xffff}}) {
    EXPECT_EQ(arrive(frame, rest).packets, 0u);
  }
  EXPECT_EQ(arrive(frame, {.checksum = true, .start = 30, .offset = 28}).packets, 1u);
}

TEST_F(ArrivalTest, MergedPacketsAreTakenApart) {
  const auto merged = tcp_frame(2500, kTcpPush, Checksums::kPseudoHeader);
  EXPECT_EQ(arrive(merged, {.segment = 1000, .tcp = true}).packets, 3u);
  ASSERT_EQ(station_.frames.size(), 3u);
  EXPECT_TRUE(station_.all_checksums_ok);
  Bytes payload;
  for (const auto& frame : station_.frames) {
    EXPECT_EQ(util::load_be32(frame.data() + kTcpAt + 4),
              kTcpSequence + static_cast<std::uint32_t>(payload.size()));
    const auto flags = std::to_integer<unsigned>(frame[kTcpAt + 13]);
    EXPECT_EQ((flags & kTcpPush) != 0, &frame == &station_.frames.back());
    payload.insert(payload.end(), frame.begin() + kTcpPayloadAt, frame.end());
  }
  EXPECT_TRUE(std::ranges::equal(payload, std::span(merged).subspan(kTcpPayloadAt)));
}

TEST_F(ArrivalTest, ManyTinySegmentsAreRefused) {
  const auto most = tcp_frame(kMergedMax, kTcpPush, Checksums::kPseudoHeader);
  EXPECT_EQ(arrive(most, {.segment = 1, .tcp = true}).packets, kMergedMax);
  const auto more = tcp_frame(kMergedMax + 1, kTcpPush, Checksums::kPseudoHeader);
  EXPECT_EQ(arrive(more, {.segment = 1, .tcp = true}).packets, 0u);
}

TEST_F(ArrivalTest, PacketsThatAreMergedByInnerHeadersAreRefused) {
  const auto merged = tcp_frame(2500, kTcpPush, Checksums::kPseudoHeader);
  EXPECT_EQ(arrive(merged, {.segment = 1000, .tcp = false}).packets, 0u);
}

TEST_F(ArrivalTest, AMergedFrameThatIsNoTcpIsRefused) {
  EXPECT_EQ(arrive(Bytes(3000, std::byte{7}), {.segment = 1000, .tcp = true}).packets, 0u);
  auto cut = tcp_frame(2500, kTcpPush, Checksums::kPseudoHeader);
  cut.resize(2000);  // the IP header says more
  EXPECT_EQ(arrive(cut, {.segment = 1000, .tcp = true}).packets, 0u);
  EXPECT_TRUE(station_.frames.empty());
}

}  // namespace
}  // namespace softhca::server
