// CREATE_QP with queues in the program's memory (kernel interface 4.7).
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "uverbs/queue_pair_program.h"

namespace softhca::uverbs {
namespace {

// create_user_qp and configure_requester_scat_cqe of mlx5_ib.
TEST_F(UverbsQueuePair, ShortDataAreInCqesWhereLinuxAsksForThem) {
  using Requester = spec::qp_cs_req;
  using Responder = spec::qp_cs_res;
  constexpr std::uint32_t kAll = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  constexpr std::uint32_t kScatter = MLX5_QP_FLAG_SCATTER_CQE;
  const auto asks = [&](std::uint32_t cq, std::uint32_t type, std::uint32_t driver_flags,
                        std::uint32_t flags) {
    driver_flags_ = driver_flags;
    std::uint32_t handle = 0;
    EXPECT_EQ(make_qp(pd_, cq, type, flags, handle), 0);
    return std::pair(static_cast<Responder>(in_device(spec::qpc::cs_res)),
                     static_cast<Requester>(in_device(spec::qpc::cs_req)));
  };
  const auto none = std::pair(Responder::DISABLE, Requester::DISABLE);
  const auto receives = std::pair(Responder::UP_TO_32B, Requester::DISABLE);
  const auto both = std::pair(Responder::UP_TO_32B, Requester::UP_TO_32B);
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_RC, 0, kAll), none) << "MLX5_SCATTER_TO_CQE=0";
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_RC, kScatter, 0), receives);
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_RC, kScatter, kAll), both);
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_RC, kScatter | MLX5_QP_FLAG_ALLOW_SCATTER_CQE, 0), both);
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_UC, kScatter, kAll), receives) << "UC has no READs";
  EXPECT_EQ(asks(cq_, IB_UVERBS_QPT_UD, kScatter, kAll), none);
  const auto wide = create_cq(128);
  EXPECT_EQ(asks(wide, IB_UVERBS_QPT_RC, kScatter, kAll),
            std::pair(Responder::UP_TO_64B, Requester::UP_TO_64B));
}

// MLX5_QP_SIGNATURE=1. process_vendor_flags of mlx5_ib accepts the flag on any card, and
// set_rq_size counts the segment with the signature.
TEST_F(UverbsQueuePair, ItsRequestsAreSignedIfTheProgramAsksForIt) {
  const auto is_signed = [&](std::uint32_t type, std::uint32_t driver_flags) {
    driver_flags_ = driver_flags;
    EXPECT_EQ(make_qp(pd_, cq_, type, 0, qp_), 0);
    return in_device(spec::qpc::wq_signature) != 0;
  };
  EXPECT_FALSE(is_signed(IB_UVERBS_QPT_RC, 0));
  EXPECT_EQ(query().max_recv_sge, 4u);
  EXPECT_TRUE(is_signed(IB_UVERBS_QPT_RC, MLX5_QP_FLAG_SIGNATURE));
  EXPECT_EQ(query().max_recv_sge, 3u);
  EXPECT_TRUE(is_signed(IB_UVERBS_QPT_UD, MLX5_QP_FLAG_SIGNATURE));
}

// PRM 7.4.2: "DB records are aligned on a 4 byte boundary."
TEST_F(UverbsQueuePair, ItsRecordIsAlignedTo4Bytes) {
  std::uint32_t handle = 0;
  record_offset_ = 2;
  EXPECT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_RC, 0, handle), EINVAL);
  record_offset_ = 4;
  EXPECT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_RC, 0, handle), 0);
}

// check_creation_flags.
TEST_F(UverbsQueuePair, ConnectedQpsHaveNoGroupsToLeaveOut) {
  constexpr std::uint32_t kBlock = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
  std::uint32_t handle = 0;
  for (const std::uint32_t type : {IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC}) {
    EXPECT_EQ(make_qp(pd_, cq_, type, kBlock, handle), EINVAL);
  }
  constexpr std::uint32_t kStrips = IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
  EXPECT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, kStrips, handle), EINVAL);
  for (const std::uint32_t flags : {std::uint32_t{0}, kBlock}) {
    ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, flags, handle), 0);
    EXPECT_EQ(in_device(spec::qpc::block_lb_mc), flags != 0 ? 1u : 0u);
  }
}

// UVERBS_METHOD_QP_CREATE, and set_rq_size of mlx5_ib.
TEST_F(UverbsQueuePair, AnInitiatorOfXrcReceivesNothing) {
  std::uint32_t handle = 0;
  EXPECT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_XRC_INI, 0, handle), EINVAL) << "it has 16 entries";
  constexpr std::uint32_t kNone = 5;
  EXPECT_EQ(make_qp(pd_, cq_, kNone, 0, handle), EINVAL) << "there is no such type";
  EXPECT_EQ(make_qp(0x7fffffff, cq_, IB_UVERBS_QPT_RC, 0, handle), ENOENT);
  EXPECT_EQ(make_qp(cq_, cq_, IB_UVERBS_QPT_RC, 0, handle), EINVAL) << "a CQ is no PD";
}

}  // namespace
}  // namespace softhca::uverbs
