// Attribute masks of MODIFY_QP: the tables of ibv_modify_qp(3), and what Linux allows beyond them.
#include "uverbs/qp_masks.h"

#include <gtest/gtest.h>

#include <bit>

#include "uverbs/program.h"

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
  QueuePair& qp(std::uint8_t type) {
    qp_.type = type;
    qp_.service = *service_of(type, 0);
    return qp_;
  }
  /// Expects that the required attributes are accepted, with and without each optional one, and no
  /// others.
  static void expect_line(const QueuePair& qp, const Line& line) {
    const auto takes = [&](std::uint32_t mask) { return takes_mask(qp, line.from, line.to, mask); };
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
  QueuePair qp_{program_.device()};
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
    expect_line(qp(IB_UVERBS_QPT_RC), line);
  }
}

TEST_F(UverbsQpMasks, OtherConnectionsHaveNoReadsOrNoResponder) {
  for (const auto& line : {Line{kQpReset, kQpInit, kInitRdma, 0},
                           {kQpInit, kQpRtr, kWay, kWayToo},
                           {kQpRtr, kQpRts, kQpSqPsn, kRuns},
                           {kQpSqe, kQpRts, 0, kQpCurrentState | kQpAccess}}) {
    expect_line(qp(IB_UVERBS_QPT_UC), line);
  }
  for (const auto& line : {Line{kQpInit, kQpRtr, kWay, kWayToo}, {kQpRtr, kQpRts, kSends, kRuns}}) {
    expect_line(qp(IB_UVERBS_QPT_XRC_INI), line);
  }
  for (const auto& line : {Line{kQpInit, kQpRtr, kWay | kQpMaxDestReads | kQpMinRnr, kWayToo},
                           {kQpRtr, kQpRts, kQpTimeout | kQpSqPsn, kRuns | kQpMinRnr}}) {
    expect_line(qp(IB_UVERBS_QPT_XRC_TGT), line);
  }
}

TEST_F(UverbsQpMasks, DatagramsHaveAKeyAndNoWay) {
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPkey | kQpPort | kQpQkey, 0},
                           {kQpInit, kQpRtr, 0, kQpPkey | kQpQkey},
                           {kQpRtr, kQpRts, kQpSqPsn, kQpCurrentState | kQpQkey},
                           {kQpRts, kQpRts, 0, kQpCurrentState | kQpQkey}}) {
    expect_line(qp(IB_UVERBS_QPT_UD), line);
  }
}

// modify_qp_mask of Linux' uverbs_cmd.c.
TEST_F(UverbsQpMasks, BitsThatAnXrcQpDoesNotUseAreLeftOut) {
  constexpr std::uint32_t kAll = kQpStandard;
  EXPECT_EQ(relevant_mask(qp(IB_UVERBS_QPT_XRC_INI), kAll),
            kAll & ~std::uint32_t{kQpMaxDestReads | kQpMinRnr});
  EXPECT_EQ(relevant_mask(qp(IB_UVERBS_QPT_XRC_TGT), kAll),
            kAll & ~std::uint32_t{kQpMaxReads | kQpRetry | kQpRnrRetry});
  EXPECT_EQ(relevant_mask(qp(IB_UVERBS_QPT_RC), kAll), kAll);
}

// modify_dci_qp_is_ok of mlx5_ib: InfiniBand's table has other lines.
TEST_F(UverbsQpMasks, InitiatorsOfDynamicConnectionsAreTheDriversOwn) {
  qp_.type = IB_UVERBS_QPT_DRIVER;
  qp_.service = softhca::spec::connectx::service_type::DCI;
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPkey | kQpPort, 0},
                           {kQpInit, kQpRtr, kQpMtu, kQpPkey | kQpPath},
                           {kQpRtr, kQpRts, kSends, kQpMinRnr},
                           {kQpRts, kQpRts, 0, kQpMinRnr}}) {
    expect_line(qp_, line);
    EXPECT_FALSE(takes_mask(qp_, line.from, line.to, line.required)) << "the state is wanted";
  }
  EXPECT_FALSE(takes_mask(qp_, kQpRts, kQpSqd, kQpState));
}

TEST_F(UverbsQpMasks, RawPacketsHaveAPortAndARate) {
  qp_.type = IB_UVERBS_QPT_RAW_PACKET;
  qp_.raw = std::make_unique<RawPacketQueues>(program_.device(), RawPacketQueues::Options{});
  for (const auto& line : {Line{kQpReset, kQpInit, kQpPort, 0},
                           {kQpInit, kQpInit, 0, 0},
                           {kQpInit, kQpRtr, 0, 0},
                           {kQpRtr, kQpRts, 0, kQpRateLimit},
                           {kQpRts, kQpRts, 0, kQpRateLimit}}) {
    expect_line(qp_, line);
  }
  EXPECT_FALSE(takes_mask(qp_, kQpReset, kQpError, kQpState));
  EXPECT_FALSE(takes_mask(qp_, kQpRtr, kQpRtr, kQpState));
}

TEST_F(UverbsQpMasks, ThereIsNoWayFromResetToAnErrorOrPastAState) {
  for (const std::uint8_t type : {IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD}) {
    EXPECT_FALSE(takes_mask(qp(type), kQpReset, kQpError, kQpState));
    EXPECT_FALSE(takes_mask(qp(type), kQpReset, kQpRtr, kQpState));
    EXPECT_FALSE(takes_mask(qp(type), kQpError, kQpInit, kQpState));
    EXPECT_TRUE(takes_mask(qp(type), kQpRtr, kQpError, kQpState));
    EXPECT_FALSE(takes_mask(qp(type), kQpInit, kQpInit, kQpState | kQpCurrentState))
        << "only of a QP that sends or receives";
  }
}

}  // namespace
}  // namespace softhca::uverbs
