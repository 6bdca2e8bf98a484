// QPs in a program's memory, and their states (kernel interface 4.7, 4.8).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "spec/connectx/qp.h"
#include "uverbs/device_command.h"
#include "uverbs/program.h"
#include "uverbs/qp_attributes.h"
#include "uverbs/route.h"

namespace softhca::uverbs {
namespace {

/// The masks that ibv_rc_pingpong uses for INIT, RTR and RTS.
constexpr std::uint32_t kPingpongInit = 0x39, kPingpongRtr = 0x129181, kPingpongRts = 0x12e01;

class UverbsQueuePair : public testing::Test {
 protected:
  explicit UverbsQueuePair(bool devx = false) {
    EXPECT_EQ(program_.reopen(devx), 0);
    page_ = program_.uar();
    pd_ = program_.pd();
    cq_ = create_cq();
    qp_ = create_qp(pd_, cq_);
  }
  std::uint64_t at(std::uint64_t page) const { return program_.memory() + page * 4096; }
  std::uint32_t create_cq(std::uint16_t cqe_size = 64) {
    mlx5_ib_create_cq own{};
    own.buf_addr = at(1);
    own.db_addr = at(60);
    own.cqe_size = cqe_size;
    own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    own.uar_page_index = static_cast<std::uint16_t>(page_);
    mlx5_ib_create_cq_resp numbers{};
    std::uint32_t last = 0;
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, std::uint32_t{32})
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers);
    EXPECT_EQ(call.on(program_.context()), 0);
    return call.made(0);
  }
  std::uint32_t create_qp(std::uint32_t pd, std::uint32_t cq) {
    std::uint32_t handle = 0;
    EXPECT_EQ(make_qp(pd, cq, IB_UVERBS_QPT_RC, 0, handle), 0);
    return handle;
  }
  Errno make_qp(std::uint32_t pd, std::uint32_t cq, std::uint32_t type, std::uint32_t flags,
                std::uint32_t& handle) {
    mlx5_ib_create_qp own{};
    own.buf_addr = at(8);
    own.db_addr = at(61) + record_offset_;
    own.sq_wqe_count = own.rq_wqe_count = 16;
    own.rq_wqe_shift = 6;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | driver_flags_;
    own.bfreg_index = page_;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    caps.max_recv_wr = own.rq_wqe_count;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, type)
        .in(UVERBS_ATTR_CREATE_QP_FLAGS, flags)
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number_)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    const auto wrong = call.on(program_.context());
    handle = call.made(0);
    return wrong;
  }
  /// The attributes of ibv_rc_pingpong.
  QpAttributes to(std::uint8_t state, std::uint32_t mask) const {
    QpAttributes in{};
    in.qp_handle = qp_;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    in.path_mtu = 3;
    in.dest.is_global = in.dest.port_num = 1;
    const auto peer = driver::Gid::from_ipv4(198, 18, 0, 2);
    std::memcpy(in.dest.dgid, peer.bytes.data(), sizeof in.dest.dgid);
    in.dest_qp_num = 0x100;
    in.timeout = 14;
    in.retry_cnt = in.rnr_retry = 7;
    in.max_rd_atomic = in.max_dest_rd_atomic = 1;
    return in;
  }
  /// Attaches a QP to a multicast group, or detaches it.
  Errno change_group(std::uint32_t command, std::uint32_t qp) {
    ib_uverbs_attach_mcast in{};
    in.qp_handle = qp;
    const auto group = driver::Gid::from_ipv4(239, 1, 1, 1);
    std::memcpy(in.gid, group.bytes.data(), sizeof in.gid);
    std::array<std::byte, 8> out{};
    return write_command(program_.context(), command, in, out);
  }
  Errno modify(const QpAttributes& in) {
    std::array<std::byte, 8> out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, out);
  }

  ib_uverbs_query_qp_resp query() {
    const std::array<std::uint32_t, 4> in{0, 0, qp_, 0};
    ib_uverbs_query_qp_resp out{};
    EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_QP, in, out), 0);
    return out;
  }
  /// A field of the QP's address path in the device.
  template <class Field>
  std::uint32_t path_in_device(Field field) {
    Command<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
    ask.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
    EXPECT_TRUE(told);
    return told->sub(spec::query_qp_out::qpc).get(spec::qpc::primary_address_path).get(field);
  }
  void set_destination(QpAttributes& in, const driver::Gid& gid) {
    std::memcpy(in.dest.dgid, gid.bytes.data(), sizeof in.dest.dgid);
  }

  Program program_;
  std::uint32_t page_ = 0, pd_ = 0, cq_ = 0, qp_ = 0, number_ = 0;
  std::uint64_t record_offset_ = 0;
  std::uint32_t driver_flags_ = 0;  ///< of MLX5_QP_FLAG_*
};

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
    Command<spec::query_qp_in> in(spec::command_opcode::QUERY_QP);
    in.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(in);
    EXPECT_TRUE(told);
    const auto qp = told->sub(spec::query_qp_out::qpc);
    return std::pair(static_cast<Responder>(qp.get(spec::qpc::cs_res)),
                     static_cast<Requester>(qp.get(spec::qpc::cs_req)));
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
    Command<spec::query_qp_in> in(spec::command_opcode::QUERY_QP);
    in.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(in);
    EXPECT_TRUE(told);
    return told->sub(spec::query_qp_out::qpc).get(spec::qpc::wq_signature) != 0;
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
    Command<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
    ask.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->sub(spec::query_qp_out::qpc).get(spec::qpc::counter_set_id),
              program_.device().counter_set());
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

// ib_uverbs_modify_qp: the address vector's port must be the QP's.
TEST_F(UverbsQueuePair, AnAddressVectorIsOfThePortOfTheQp) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto in = to(2, kPingpongRtr);
  for (const std::uint8_t port : {0, 2, 255}) {
    in.dest.port_num = port;
    EXPECT_EQ(modify(in), EINVAL) << unsigned{port};
  }
}

// rdma_fill_sgid_attr, rdma_addr_find_l2_eth_by_grh, mlx5r_ib_rate.
TEST_F(UverbsQueuePair, AWayThatLeadsNowhereIsRefusedAsLinuxDoes) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto in = to(2, kPingpongRtr);
  in.dest.sgid_index = 200;
  EXPECT_EQ(modify(in), ENODATA) << "no GID";
  in = to(2, kPingpongRtr);
  in.dest.is_global = 0;
  EXPECT_EQ(modify(in), EINVAL) << "RoCE wants a GRH";
  in = to(2, kPingpongRtr);
  set_destination(in, {});
  EXPECT_EQ(modify(in), EINVAL) << "IPv6, from an IPv4 address";
  set_destination(in, driver::Gid::from_ipv4(0, 0, 0, 0));
  EXPECT_EQ(modify(in), ENODEV);
  for (const std::uint8_t rate : {1, 24, 255}) {
    in = to(2, kPingpongRtr);
    in.dest.static_rate = rate;
    EXPECT_EQ(modify(in), EINVAL) << unsigned{rate};
  }
  program_.knows_macs = false;
  in = to(2, kPingpongRtr);
  EXPECT_EQ(modify(in), ETIMEDOUT);
  set_destination(in, driver::Gid::from_ipv4(255, 255, 255, 255));
  EXPECT_EQ(modify(in), 0) << "all have an address";
}

// mlx5_ib_query_qp reads the context from the device.
TEST_F(UverbsQueuePair, IsToldAsTheDeviceHasIt) {
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
  Command<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
  ask.set(spec::query_qp_in::qpn, number_);
  const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->sub(spec::query_qp_out::qpc).get(spec::qpc::atomic_mode),
            static_cast<std::uint32_t>(spec::qp_atomic_mode::UP_TO_8B));
}

/// In a context with DevX.
class UverbsQueuePairOfDevx : public UverbsQueuePair {
 protected:
  UverbsQueuePairOfDevx() : UverbsQueuePair(true) {}
};

// mlx5dv_devx_qp_modify(). libmlx5 sets the record to 0 in ibv_modify_qp() alone.
TEST_F(UverbsQueuePairOfDevx, AResetByACommandBeginsTheRecordAnew) {
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

// rdma_get_gid_attr: a QP holds the GID entry of its address path.
TEST_F(UverbsQueuePair, KeepsTheEntryOfItsAddress) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  ASSERT_EQ(modify(to(2, kPingpongRtr)), 0);
  ASSERT_TRUE(program_.device().set_gid(0, std::nullopt));
  EXPECT_FALSE(program_.device().is_gid_free(0));
  EXPECT_TRUE(program_.device().is_gid_free(1));
  program_.close();
  EXPECT_TRUE(program_.device().is_gid_free(0));
}

// ib_attach_mcast: a QP attached to a multicast group is in use.
TEST_F(UverbsQueuePair, AQpOfAGroupIsNotDestroyed) {
  std::uint32_t datagrams = 0;
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, datagrams), 0);
  const auto change = [&](std::uint32_t command) { return change_group(command, datagrams); };
  const auto destroy = [&] {
    ib_uverbs_destroy_qp_resp out{};
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .number(UVERBS_ATTR_DESTROY_QP_HANDLE, datagrams)
        .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
        .on(program_.context());
  };
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), EINVAL) << "it is in none";
  ASSERT_EQ(change(IB_USER_VERBS_CMD_ATTACH_MCAST), 0);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_ATTACH_MCAST), 0) << "once is enough";
  EXPECT_EQ(destroy(), EBUSY);
  EXPECT_EQ(change(IB_USER_VERBS_CMD_DETACH_MCAST), 0);
  EXPECT_EQ(destroy(), 0);
}

// cmd_status_to_err() of Linux: EXCEED_LIM, here of max_qp_mcg.
TEST_F(UverbsQueuePair, AGroupThatIsFullTakesNoOther) {
  constexpr unsigned kMembers = 240;
  std::uint32_t member = 0;
  for (unsigned i = 0; i != kMembers; ++i) {
    ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, member), 0);
    ASSERT_EQ(change_group(IB_USER_VERBS_CMD_ATTACH_MCAST, member), 0) << i;
  }
  ASSERT_EQ(make_qp(pd_, cq_, IB_UVERBS_QPT_UD, 0, member), 0);
  EXPECT_EQ(change_group(IB_USER_VERBS_CMD_ATTACH_MCAST, member), ENOMEM);
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
    Command<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
    ask.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->sub(spec::query_qp_out::qpc).get(spec::qpc::block_lb_mc), flags != 0);
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

// rdma_flow_label_to_udp_sport and rdma_calc_flow_label: both ends compute the same port.
TEST(UverbsRoute, TheSourcePortIsOfTheLabelOrOfBothNumbers) {
  EXPECT_EQ(udp_source_port(0xABCDE, 1, 2), 0xC000 | ((0xABCDE & 0x3fff) ^ (0xABCDE >> 14)));
  EXPECT_EQ(udp_source_port(0, 0x1234, 0x77), udp_source_port(0, 0x77, 0x1234));
  EXPECT_NE(udp_source_port(0, 0x1234, 0x77), udp_source_port(0, 0x1235, 0x77));
}

}  // namespace
}  // namespace softhca::uverbs
