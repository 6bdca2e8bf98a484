// The states of QPs, and their attributes (kernel interface 4.8).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "uverbs/queue_pair_program.h"
#include "uverbs/route.h"

namespace softhca::uverbs {
namespace {

// mlx5_ib_modify_qp of Linux.
TEST_F(UverbsQueuePair, NoMoreReadsAreUnderWayThanTheDeviceCanHave) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto receives = to(2, kPingpongRtr);
  for (const std::uint8_t reads : {17, 129, 255}) {
    receives.max_dest_rd_atomic = reads;
    EXPECT_EQ(modify(receives), EINVAL) << unsigned{reads};
  }
  receives.max_dest_rd_atomic = 16;
  ASSERT_EQ(modify(receives), 0);
  auto sends = to(3, kPingpongRts);
  sends.max_rd_atomic = 255;
  EXPECT_EQ(modify(sends), EINVAL);
  sends.max_rd_atomic = 16;
  EXPECT_EQ(modify(sends), 0);
}

// mlx5_ib has one counter set for each port, shown by `rdma statistic`.
TEST_F(UverbsQueuePair, CountsInTheSetOfItsDevice) {
  ASSERT_NE(program_.device().counter_set(), 0);
  for (const auto& step : {to(1, kPingpongInit), to(2, kPingpongRtr), to(3, kPingpongRts)}) {
    ASSERT_EQ(modify(step), 0);
    EXPECT_EQ(in_device(spec::qpc::counter_set_id), program_.device().counter_set());
  }
}

// ib_modify_qp_is_ok of Linux. qp_masks_test.cc covers the masks themselves.
TEST_F(UverbsQueuePair, AMaskThatTheStepDoesNotTakeChangesNothing) {
  EXPECT_EQ(modify(to(1, kPingpongInit & ~std::uint32_t{kQpAccess})), EINVAL);
  EXPECT_EQ(query().qp_state, kQpReset);
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  EXPECT_EQ(modify(to(2, kPingpongRtr & ~std::uint32_t{kQpRqPsn})), EINVAL);
  EXPECT_EQ(modify(to(2, kPingpongRtr & ~std::uint32_t{kQpState})), EINVAL)
      << "INIT has no such way";
  ASSERT_EQ(modify(to(2, kPingpongRtr)), 0);
  EXPECT_EQ(modify(to(3, kPingpongRts & ~std::uint32_t{kQpTimeout})), EINVAL);
  ASSERT_EQ(modify(to(3, kPingpongRts)), 0);
  auto later = to(3, kQpState | kQpTimeout);
  later.timeout = 3;
  EXPECT_EQ(modify(later), EINVAL);
  EXPECT_EQ(query().timeout, 14);
  later.attr_mask = kQpPath;
  later.dest.traffic_class = 9;
  EXPECT_EQ(modify(later), EINVAL);
  EXPECT_EQ(query().dest.traffic_class, 0);
}

// ib_uverbs_modify_qp, ib_uverbs_ex_modify_qp.
TEST_F(UverbsQueuePair, AttributesThatThereAreNotAreNotSupported) {
  for (const unsigned bit : {21, 24, 25, 31}) {
    EXPECT_EQ(modify(to(1, kPingpongInit | 1u << bit)), EOPNOTSUPP) << bit;
  }
  EXPECT_EQ(modify(to(1, kPingpongInit | 1u << 20)), EINVAL) << "a peer's number, but not here";
}

// mlx5_ib_query_qp reads the context from the device.
TEST_F(UverbsQueuePair, IsReportedAsTheDeviceHasIt) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  EXPECT_EQ(query().max_recv_sge, 4u) << "as many as its stride has room for";
  auto receives = to(2, kPingpongRtr);
  receives.rq_psn = 0x7654321;
  receives.max_dest_rd_atomic = 5;
  receives.dest.hop_limit = 3;
  ASSERT_EQ(modify(receives), 0);
  auto sends = to(3, kPingpongRts);
  sends.max_rd_atomic = 3;
  sends.sq_psn = 0x1234567;
  ASSERT_EQ(modify(sends), 0);
  auto now = query();
  EXPECT_EQ(now.qp_state, kQpRts);
  EXPECT_EQ(now.rq_psn, 0x654321u);
  EXPECT_EQ(now.sq_psn, 0x234567u);
  EXPECT_EQ(now.max_dest_rd_atomic, 8);
  EXPECT_EQ(now.max_rd_atomic, 4);
  EXPECT_EQ(now.dest.hop_limit, 64) << "the route's";
  EXPECT_EQ(now.dest.port_num, 1);
  EXPECT_EQ(now.timeout, 14);
  ASSERT_EQ(modify(to(0, kQpState)), 0);
  now = query();
  EXPECT_EQ(now.qp_state, kQpReset);
  EXPECT_EQ(now.sq_psn, 0u);
  EXPECT_EQ(now.rq_psn, 0u);
}

TEST_F(UverbsQueuePair, EachAttributeIsTheOneThatWasGiven) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto receives = to(2, kPingpongRtr);
  receives.path_mtu = 2;
  receives.dest_qp_num = 0x54321;
  receives.min_rnr_timer = 13;
  receives.dest.sl = 5;
  receives.dest.traffic_class = 0xA9;
  receives.dest.flow_label = 0xABCDE;
  ASSERT_EQ(modify(receives), 0);
  auto sends = to(3, kPingpongRts);
  sends.timeout = 17;
  sends.retry_cnt = 3;
  sends.rnr_retry = 6;
  ASSERT_EQ(modify(sends), 0);
  const auto now = query();
  EXPECT_EQ(now.path_mtu, 2);
  EXPECT_EQ(now.dest_qp_num, 0x54321u);
  EXPECT_EQ(now.min_rnr_timer, 13);
  EXPECT_EQ(now.timeout, 17);
  EXPECT_EQ(now.retry_cnt, 3);
  EXPECT_EQ(now.rnr_retry, 6);
  EXPECT_EQ(now.port_num, 1);
  EXPECT_EQ(now.dest.traffic_class, 0xA9);
  EXPECT_EQ(now.dest.flow_label, 0xABCDEu);
  EXPECT_EQ(now.dest.sgid_index, 0);
  EXPECT_EQ(std::memcmp(now.dest.dgid, receives.dest.dgid, sizeof now.dest.dgid), 0);
  // mlx5_set_path: the fields that reach the wire.
  EXPECT_EQ(path_in_device(spec::ads::eth_prio), 5u);
  EXPECT_EQ(path_in_device(spec::ads::dscp), 0xA9u >> 2);
  EXPECT_EQ(path_in_device(spec::ads::udp_sport), udp_source_port(0xABCDE, number_, 0x54321));
}

// mlx5_ib changes only what opt_param_mask names.
TEST_F(UverbsQueuePair, ARunningOneTakesAnotherTimerAndOtherRights) {
  auto begins = to(1, kPingpongInit);
  begins.qp_access_flags = kQpRemoteWrite | kQpRemoteRead;
  ASSERT_EQ(modify(begins), 0);
  begins.attr_mask = kQpState | kQpAccess;
  begins.qp_access_flags = kQpRemoteWrite | kQpRemoteRead | kQpRemoteAtomic;
  ASSERT_EQ(modify(begins), 0) << "INIT to INIT";
  auto receives = to(2, kPingpongRtr);
  receives.min_rnr_timer = 13;
  ASSERT_EQ(modify(receives), 0);
  EXPECT_EQ(query().qp_access_flags, begins.qp_access_flags);
  ASSERT_EQ(modify(to(3, kPingpongRts)), 0);
  auto later = to(3, kQpState | kQpMinRnr);
  later.min_rnr_timer = 21;
  later.qp_access_flags = 0;
  ASSERT_EQ(modify(later), 0);
  EXPECT_EQ(query().min_rnr_timer, 21);
  EXPECT_EQ(query().qp_access_flags, begins.qp_access_flags) << "they were not given";
  later.attr_mask = kQpState | kQpAccess;
  later.min_rnr_timer = 5;
  later.qp_access_flags = kQpRemoteRead;
  ASSERT_EQ(modify(later), 0);
  EXPECT_EQ(query().min_rnr_timer, 21);
  EXPECT_EQ(query().qp_access_flags, kQpRemoteRead);
}

TEST_F(UverbsQueuePair, DatagramsHaveAKeyThatMayChangeAndTheLargestMtu) {
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, qp_), 0);
  auto begins = to(1, kQpState | kQpPkey | kQpPort | kQpQkey);
  begins.qkey = 0x11111111;
  ASSERT_EQ(modify(begins), 0);
  EXPECT_EQ(query().qkey, 0x11111111u);
  ASSERT_EQ(modify(to(2, kQpState)), 0);
  ASSERT_EQ(modify(to(3, kQpState | kQpSqPsn)), 0);
  auto later = to(3, kQpState | kQpQkey);
  later.qkey = 0x22222222;
  ASSERT_EQ(modify(later), 0);
  const auto now = query();
  EXPECT_EQ(now.qkey, 0x22222222u);
  EXPECT_EQ(now.path_mtu, 5);
  EXPECT_EQ(now.qp_state, kQpRts);
}

// set_qpc_atomic_flags.
TEST_F(UverbsQueuePair, AQpThatAnswersNoReadsTakesWritesOnly) {
  auto begins = to(1, kPingpongInit);
  begins.qp_access_flags = kQpRemoteWrite | kQpRemoteRead | kQpRemoteAtomic;
  ASSERT_EQ(modify(begins), 0);
  EXPECT_EQ(query().qp_access_flags, kQpRemoteWrite) << "nothing is known of reads yet";
  auto receives = to(2, kPingpongRtr);
  receives.max_dest_rd_atomic = 0;
  ASSERT_EQ(modify(receives), 0);
  EXPECT_EQ(query().qp_access_flags, kQpRemoteWrite);
  ASSERT_EQ(modify(to(0, kQpState)), 0);
  ASSERT_EQ(modify(begins), 0);
  receives.max_dest_rd_atomic = 1;
  ASSERT_EQ(modify(receives), 0);
  EXPECT_EQ(query().qp_access_flags, begins.qp_access_flags);
}

// get_atomic_mode of Linux, for a device with extended atomics of 8 bytes: UCX posts them.
TEST_F(UverbsQueuePair, TakesMaskedAtomicsOfUpTo8Bytes) {
  auto begins = to(1, kPingpongInit);
  begins.qp_access_flags = kQpRemoteAtomic;
  ASSERT_EQ(modify(begins), 0);
  ASSERT_EQ(modify(to(2, kPingpongRtr)), 0);
  EXPECT_EQ(in_device(spec::qpc::atomic_mode),
            static_cast<std::uint32_t>(spec::qp_atomic_mode::UP_TO_8B));
}

/// In a context with DevX.
class UverbsQueuePairOfDevx : public UverbsQueuePair {
 protected:
  UverbsQueuePairOfDevx() : UverbsQueuePair(true) {}
};

// mlx5dv_devx_qp_modify(). libmlx5 sets the record to 0 in ibv_modify_qp() alone.
TEST_F(UverbsQueuePairOfDevx, AResetByACommandRestartsTheRecord) {
  for (const auto& step : {to(1, kPingpongInit), to(2, kPingpongRtr), to(3, kPingpongRts)}) {
    ASSERT_EQ(modify(step), 0);
  }
  auto* const posted = reinterpret_cast<std::uint32_t*>(at(61) + 4);
  *posted = __builtin_bswap32(5);
  Command<spec::qp_2rst_in> in(spec::command_opcode::QP_2RST);
  in.set(spec::qp_2rst_in::qpn, number_);
  std::array<std::byte, 16> out{};
  const auto all = in.all();
  EXPECT_EQ(Call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
                .number(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, qp_)
                .add(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, static_cast<std::uint16_t>(all.size()),
                     reinterpret_cast<std::uint64_t>(all.data()))
                .out(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, out)
                .on(program_.context()),
            0);
  EXPECT_EQ(*posted, 0u);
}

}  // namespace
}  // namespace softhca::uverbs
