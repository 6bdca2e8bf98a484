// Attribute masks of MODIFY_QP: the tables of ibv_modify_qp(3), and what Linux allows beyond them.
#include <gtest/gtest.h>

#include <initializer_list>

#include "uverbs/program.h"
#include "uverbs/raw_packet_qps.h"
#include "uverbs/transport_qps.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kBits = 26;

/// A line of a table of the manual page, without the state.
struct Line {
  std::uint8_t from, to;
  std::uint32_t required, optional;
};

class UverbsQpMasks : public testing::Test {
 protected:
  /// Expects that the required attributes are accepted, with and without each optional one, and no
  /// others.
  static void expect_line(const QueuedQp& qp, const Line& line) {
    const auto takes = [&](std::uint32_t mask) { return qp.takes(line.from, line.to, mask); };
    const auto least = line.required | kQpState;
    EXPECT_TRUE(takes(least)) << unsigned{line.from} << " to " << unsigned{line.to};
    EXPECT_TRUE(takes(least | line.optional));
    for (std::uint32_t i = 0; i != kBits; ++i) {
      const auto bit = 1u << i;
      if (bit == kQpState) continue;
      EXPECT_EQ(takes(least | bit), ((line.required | line.optional) & bit) != 0) << "with " << i;
      EXPECT_EQ(takes(least & ~bit), (line.required & bit) == 0) << "without " << i;
    }
  }

  Program program_;
  const ReliableQp rc_{program_.device()};
  const UnreliableQp uc_{program_.device()};
  const DatagramQp ud_{program_.device()};
  const XrcInitiator xrc_initiator_{program_.device()};
  const XrcTargetQp xrc_target_{program_.device()};
  const DynamicInitiator dynamic_initiator_{program_.device()};
  const RawPacketQp raw_packet_{program_.device()};
};

constexpr std::uint32_t kInitRdma = kQpPkey | kQpPort | kQpAccess;
constexpr std::uint32_t kWay = kQpPath | kQpMtu | kQpDestQpn | kQpRqPsn;
constexpr std::uint32_t kWayToo = kQpAlternatePath | kQpAccess | kQpPkey;
constexpr std::uint32_t kSends = kQpTimeout | kQpRetry | kQpRnrRetry | kQpSqPsn | kQpMaxReads;
constexpr std::uint32_t kRuns = kQpCurrentState | kQpAlternatePath | kQpAccess | kQpMigration;

TEST_F(UverbsQpMasks, ReliableConnectionsNeedAndTakeWhatTheManualPageSays) {
  for (const auto& line : {Line{kQpReset, kQpInit, kInitRdma, 0},
                           {kQpInit, kQpInit, 0, kInitRdma},
                           {kQpInit, kQpRtr, kWay | kQpMaxDestReads | kQpMinRnr, kWayToo},
                           {kQpRtr, kQpRts, kSends, kRuns | kQpMinRnr},
                           {kQpRts, kQpRts, 0, kRuns | kQpMinRnr},
                           {kQpRts, kQpReset, 0, 0},
                           {kQpError, kQpReset, 0, 0}}) {
    expect_line(rc_, line);
  }
}

TEST_F(UverbsQpMasks, OtherConnectionsHaveNoReadsOrNoResponder) {
  for (const auto& line : {Line{kQpReset, kQpInit, kInitRdma, 0},
                           {kQpInit, kQpRtr, kWay, kWayToo},
                           {kQpRtr, kQpRts, kQpSqPsn, kRuns},
                           {kQpSqe, kQpRts, 0, kQpCurrentState | kQpAccess}}) {
    expect_line(uc_, line);
  }
  for (const auto& line : {Line{kQpInit, kQpRtr, kWay, kWayToo}, {kQpRtr, kQpRts, kSends, kRuns}}) {
    expect_line(xrc_initiator_, line);
  }
  for (const auto& line : {Line{kQpInit, kQpRtr, kWay | kQpMaxDestReads | kQpMinRnr, kWayToo},
                           {kQpRtr, kQpRts, kQpTimeout | kQpSqPsn, kRuns | kQpMinRnr}}) {
    expect_line(xrc_target_, line);
  }
}

TEST_F(UverbsQpMasks, DatagramsHaveAKeyAndNoWay) {
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPkey | kQpPort | kQpQkey, 0},
                           {kQpInit, kQpRtr, 0, kQpPkey | kQpQkey},
                           {kQpRtr, kQpRts, kQpSqPsn, kQpCurrentState | kQpQkey},
                           {kQpRts, kQpRts, 0, kQpCurrentState | kQpQkey}}) {
    expect_line(ud_, line);
  }
}

// modify_qp_mask of Linux' uverbs_cmd.c.
TEST_F(UverbsQpMasks, BitsThatAnXrcQpDoesNotUseAreLeftOut) {
  constexpr std::uint32_t kAll = kQpStandard;
  EXPECT_EQ(xrc_initiator_.relevant_mask(kAll), kAll & ~std::uint32_t{kQpMaxDestReads | kQpMinRnr});
  EXPECT_EQ(xrc_target_.relevant_mask(kAll),
            kAll & ~std::uint32_t{kQpMaxReads | kQpRetry | kQpRnrRetry});
  EXPECT_EQ(rc_.relevant_mask(kAll), kAll);
}

// modify_dci_qp_is_ok of mlx5_ib: InfiniBand's table has other lines.
TEST_F(UverbsQpMasks, InitiatorsOfDynamicConnectionsAreTheDriversOwn) {
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPkey | kQpPort, 0},
                           {kQpInit, kQpRtr, kQpMtu, kQpPkey | kQpPath},
                           {kQpRtr, kQpRts, kSends, kQpMinRnr},
                           {kQpRts, kQpRts, 0, kQpMinRnr}}) {
    expect_line(dynamic_initiator_, line);
    EXPECT_FALSE(dynamic_initiator_.takes(line.from, line.to, line.required))
        << "the state is wanted";
  }
  EXPECT_FALSE(dynamic_initiator_.takes(kQpRts, kQpSqd, kQpState));
}

TEST_F(UverbsQpMasks, RawPacketsHaveAPortAndARate) {
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPort, 0},
                           {kQpInit, kQpInit, 0, 0},
                           {kQpInit, kQpRtr, 0, 0},
                           {kQpRtr, kQpRts, 0, kQpRateLimit},
                           {kQpRts, kQpRts, 0, kQpRateLimit}}) {
    expect_line(raw_packet_, line);
  }
  EXPECT_FALSE(raw_packet_.takes(kQpReset, kQpError, kQpState));
  EXPECT_FALSE(raw_packet_.takes(kQpRtr, kQpRtr, kQpState));
}

TEST_F(UverbsQpMasks, ThereIsNoWayFromResetToAnErrorOrPastAState) {
  for (const QueuedQp* qp : std::initializer_list<const QueuedQp*>{&rc_, &uc_, &ud_}) {
    EXPECT_FALSE(qp->takes(kQpReset, kQpError, kQpState));
    EXPECT_FALSE(qp->takes(kQpReset, kQpRtr, kQpState));
    EXPECT_FALSE(qp->takes(kQpError, kQpInit, kQpState));
    EXPECT_TRUE(qp->takes(kQpRtr, kQpError, kQpState));
    EXPECT_FALSE(qp->takes(kQpInit, kQpInit, kQpState | kQpCurrentState))
        << "only of a QP that sends or receives";
  }
}

}  // namespace
}  // namespace softhca::uverbs
