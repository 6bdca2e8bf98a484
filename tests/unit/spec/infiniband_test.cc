// Codes and header formats of the InfiniBand transport.
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "spec/infiniband/constants.h"
#include "spec/infiniband/transport.h"

namespace softhca::spec::infiniband {
namespace {

using namespace std::chrono_literals;

TEST(InfinibandLayout, HeadersHaveTheirSizesOnTheWire) {
  EXPECT_EQ(bth::kSize, 12u);
  EXPECT_EQ(reth::kSize, 16u);
  EXPECT_EQ(atomic_eth::kSize, 28u);
  EXPECT_EQ(grh::kSize, kGrhBytes);
}

TEST(InfinibandLayout, BthReadsThePacketOfAnAcknowledge) {
  const std::array<unsigned char, 12> packet = {0x11, 0x40, 0xFF, 0xFF, 0x00, 0x12,
                                                0x34, 0x56, 0x80, 0x00, 0x00, 0x2A};
  const util::View<bth> view(std::as_bytes(std::span(packet)));
  EXPECT_EQ(view.get(bth::opcode), static_cast<std::uint32_t>(bth_opcode::RC_ACKNOWLEDGE));
  EXPECT_EQ(view.get(bth::mig_req), 1u);
  EXPECT_EQ(view.get(bth::pkey), kDefaultPkey);
  EXPECT_EQ(view.get(bth::dest_qp), 0x123456u);
  EXPECT_EQ(view.get(bth::ack_req), 1u);
  EXPECT_EQ(view.get(bth::psn), 42u);
}

TEST(InfinibandCodes, RnrTimerCodesGrowFromCodeOneAndZeroIsTheLongest) {
  EXPECT_EQ(rnr_timer(1), 10us);
  EXPECT_EQ(rnr_timer(12), 640us);
  EXPECT_EQ(rnr_timer(31), 491'520us);
  EXPECT_EQ(rnr_timer(0), 655'360us);
  for (std::uint8_t code = 2; code < 32; ++code) EXPECT_GT(rnr_timer(code), rnr_timer(code - 1));
}

TEST(InfinibandCodes, RnrTimersDoubleWithEverySecondCode) {
  EXPECT_EQ(rnr_timer(2), 20us);
  EXPECT_EQ(rnr_timer(3), 30us);
  for (std::uint8_t code = 4; code < 32; ++code) {
    EXPECT_EQ(rnr_timer(code), 2 * rnr_timer(code - 2)) << int{code};
  }
  EXPECT_EQ(rnr_timer(0), 2 * rnr_timer(30));
}

TEST(InfinibandCodes, AckTimeoutDoublesWithEachCodeAndZeroIsNever) {
  EXPECT_EQ(ack_timeout(0), std::nullopt);
  EXPECT_EQ(ack_timeout(1), 8192ns);
  EXPECT_EQ(ack_timeout(14), 67'108'864ns);
  for (std::uint8_t code = 2; code < 32; ++code) {
    EXPECT_EQ(ack_timeout(code), 2 * *ack_timeout(code - 1)) << int{code};
  }
}

TEST(InfinibandCodes, CreditCountsGrowByHalvesAndThirdsUpTo32768) {
  EXPECT_EQ(credit_count(0), 0u);
  EXPECT_EQ(credit_count(1), 1u);
  EXPECT_EQ(credit_count(2), 2u);
  EXPECT_EQ(credit_count(3), 3u);
  for (std::uint8_t code = 4; code < 31; ++code) {
    EXPECT_EQ(credit_count(code), 2 * *credit_count(code - 2)) << int{code};
  }
  EXPECT_EQ(credit_count(30), 32768u);
  EXPECT_EQ(credit_count(31), std::nullopt);
}

TEST(InfinibandCodes, MtuCodes) {
  EXPECT_EQ(mtu_bytes(0), 0u);
  EXPECT_EQ(mtu_bytes(1), 256u);
  EXPECT_EQ(mtu_bytes(3), 1024u);
  EXPECT_EQ(mtu_bytes(5), 4096u);
  EXPECT_EQ(mtu_bytes(6), 0u);
  EXPECT_EQ(mtu_bytes(7), 0u);
}

}  // namespace
}  // namespace softhca::spec::infiniband
