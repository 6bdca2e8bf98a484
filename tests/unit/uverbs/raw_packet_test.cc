// Raw packet QPs and receive-queue tables (kernel interface 4.7), with the kernel's errno.
#include <gtest/gtest.h>

#include <cerrno>

#include "spec/connectx/flow_table.h"
#include "uverbs/raw_packet_program.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kRateLimit = 1u << 25;
constexpr std::uint8_t kReset = 0;

TEST_F(UverbsRawPacket, ReportsItsNumbersToAProgramWithDevx) {
  const auto qp = create_qp(16, 16);
  ASSERT_EQ(qp.wrong, 0);
  EXPECT_EQ(qp.told.comp_mask, 0xfu);
  EXPECT_EQ(qp.number, qp.told.sqn);
  EXPECT_NE(qp.told.rqn, 0u);
  EXPECT_NE(qp.told.tirn + qp.told.tisn, 0u);
  const auto receiver = create_qp(0, 16);
  ASSERT_EQ(receiver.wrong, 0);
  EXPECT_EQ(receiver.number, receiver.told.rqn);
  EXPECT_EQ(create_qp(0, 0).wrong, EINVAL);
}

// process_vendor_flags and create_raw_packet_qp_rq of mlx5_ib: the flag is accepted, and the device
// does not get it.
TEST_F(UverbsRawPacket, ItsQueuesCheckNoSignatures) {
  const auto qp = create_qp(16, 16, MLX5_QP_FLAG_SIGNATURE);
  ASSERT_EQ(qp.wrong, 0);
  using softhca::spec::connectx::query_rq_in;
  using softhca::spec::connectx::query_rq_out;
  driver::connectx::Request<query_rq_in> in(softhca::spec::connectx::command_opcode::QUERY_RQ);
  in.set(query_rq_in::rqn, qp.told.rqn);
  const auto out = program_.device().commands().execute<query_rq_out>(in);
  ASSERT_TRUE(out);
  namespace connectx = softhca::spec::connectx;
  const auto wq = out->get(query_rq_out::rq_context).get(connectx::rq_context::wq);
  EXPECT_EQ(wq.get(connectx::wq::wq_signature), 0u);
}

TEST_F(UverbsRawPacket, TakesItsStepsInTheirOrder) {
  const auto qp = create_qp(16, 16);
  EXPECT_EQ(modify(qp, kStateBit, kInitState), EINVAL) << "without a port";
  EXPECT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
  EXPECT_EQ(modify(qp, kStateBit, kRtsState), EINVAL);
  EXPECT_EQ(modify(qp, kStateBit, kRtrState), 0);
  EXPECT_EQ(modify(qp, kStateBit | 0x100, kRtsState), EINVAL) << "it has no MTU";
  EXPECT_EQ(modify(qp, kStateBit | kRateLimit, kRtsState), EOPNOTSUPP) << "this form has no rate";
  EXPECT_EQ(limit(qp, kStateBit | kRateLimit, kRtsState, 1000), EOPNOTSUPP)
      << "a ConnectX-4 has no rates";
  EXPECT_EQ(modify(qp, kStateBit, kRtsState), 0);
  EXPECT_EQ(modify(qp, kStateBit, kErrorState), 0);
  EXPECT_EQ(modify(qp, kStateBit, kReset), 0);
  EXPECT_EQ(limit(qp, kStateBit | kPortBit | kRateLimit, kInitState, 0), EINVAL)
      << "nor is it their place";
  EXPECT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
  EXPECT_EQ(modify(qp, kStateBit, kRtrState), 0);
  EXPECT_EQ(limit(qp, kStateBit | kRateLimit, kRtsState, 0), 0) << "none at all is what it has";
}

// PRM 7.12.1: an error moves the queue to ERR, and the program resets it from there.
TEST_F(UverbsRawPacket, ItsReceiveQueueIsResetAfterAnErrorOfTheDevice) {
  const auto qp = create_qp(16, 16);
  ASSERT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
  using In = softhca::spec::connectx::modify_rq_in;
  using softhca::spec::connectx::rq_state;
  driver::connectx::Request<In> fail(softhca::spec::connectx::command_opcode::MODIFY_RQ);
  fail.set(In::uid, 1);
  fail.set(In::rqn, qp.told.rqn);
  fail.set(In::rq_state, static_cast<std::uint32_t>(rq_state::RDY));
  fail.sub(In::rq_context)
      .set(softhca::spec::connectx::rq_context::state, static_cast<std::uint32_t>(rq_state::ERR));
  ASSERT_TRUE(program_.device().commands().run(fail));
  EXPECT_EQ(modify(qp, kStateBit, kReset), 0);
  EXPECT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
}

// sqrq_state_to_qp_state of mlx5_ib.
TEST_F(UverbsRawPacket, ItsStateFollowsFromThoseOfItsQueues) {
  namespace connectx = softhca::spec::connectx;
  const auto fail_receiver = [&](const Qp& qp) {
    using In = connectx::modify_rq_in;
    driver::connectx::Request<In> in(connectx::command_opcode::MODIFY_RQ);
    in.set(In::uid, 1);
    in.set(In::rqn, qp.told.rqn);
    in.set(In::rq_state, static_cast<std::uint32_t>(connectx::rq_state::RDY));
    in.sub(In::rq_context)
        .set(connectx::rq_context::state, static_cast<std::uint32_t>(connectx::rq_state::ERR));
    EXPECT_TRUE(program_.device().commands().run(in));
  };
  const auto fail_sender = [&](const Qp& qp) {
    using In = connectx::modify_sq_in;
    driver::connectx::Request<In> in(connectx::command_opcode::MODIFY_SQ);
    in.set(In::uid, 1);
    in.set(In::sqn, qp.told.sqn);
    in.set(In::sq_state, static_cast<std::uint32_t>(connectx::sq_state::RDY));
    in.sub(In::sq_context)
        .set(connectx::sq_context::state, static_cast<std::uint32_t>(connectx::sq_state::ERR));
    EXPECT_TRUE(program_.device().commands().run(in));
  };
  const auto ready = [&](std::uint32_t send_blocks, std::uint32_t receives) {
    const auto qp = create_qp(send_blocks, receives);
    EXPECT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
    EXPECT_EQ(modify(qp, kStateBit, kRtrState), 0);
    EXPECT_EQ(modify(qp, kStateBit, kRtsState), 0);
    return qp;
  };
  std::uint8_t state = 0;
  const auto query = [&](const Qp& qp) {
    const std::array<std::uint32_t, 4> in{0, 0, qp.handle, kStateBit};
    ib_uverbs_query_qp_resp out{};
    const auto wrong = write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_QP, in, out);
    state = out.qp_state;
    return wrong;
  };
  constexpr std::uint8_t kSqeState = 5;
  const auto receiver = ready(0, 16);
  ASSERT_EQ(query(receiver), 0);
  EXPECT_EQ(state, kRtsState);
  fail_receiver(receiver);
  ASSERT_EQ(query(receiver), 0);
  EXPECT_EQ(state, kErrorState);
  const auto sender = ready(16, 0);
  fail_sender(sender);
  ASSERT_EQ(query(sender), 0);
  EXPECT_EQ(state, kRtsState) << "Linux has no state for it";
  const auto both = ready(16, 16);
  fail_sender(both);
  ASSERT_EQ(query(both), 0);
  EXPECT_EQ(state, kSqeState);
  const auto other = ready(16, 16);
  fail_receiver(other);
  EXPECT_EQ(query(other), EINVAL) << "nor for this";
  EXPECT_EQ(modify(other, kStateBit, kErrorState), 0);
  ASSERT_EQ(query(other), 0);
  EXPECT_EQ(state, kErrorState);
}

TEST_F(UverbsRawPacket, ReceivesItselfAndItsGroupsAsItAsks) {
  const auto hears = [&](std::uint32_t flag) {
    const auto qp = create_qp(0, 16, flag);
    using In = softhca::spec::connectx::query_tir_in;
    using Out = softhca::spec::connectx::query_tir_out;
    using Tir = softhca::spec::connectx::tir_context;
    driver::connectx::Request<In> in(softhca::spec::connectx::command_opcode::QUERY_TIR);
    in.set(In::tirn, qp.told.tirn);
    const auto out = program_.device().commands().execute<Out>(in);
    EXPECT_TRUE(out);
    const auto tir = out->get(Out::tir_context);
    return std::pair(tir.get(Tir::self_lb_en_unicast) != 0,
                     tir.get(Tir::self_lb_en_multicast) != 0);
  };
  EXPECT_EQ(hears(0), std::pair(false, false));
  EXPECT_EQ(hears(MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC), std::pair(true, false));
  EXPECT_EQ(hears(MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC), std::pair(false, true));
}

TEST_F(UverbsRawPacket, StaysWhileAFlowLeadsToIt) {
  const auto qp = create_qp(16, 16);
  std::uint32_t handle = 0;
  ASSERT_EQ(create(flow_to(qp, 1), handle), 0);
  EXPECT_EQ(destroy_qp(qp), EBUSY);
  EXPECT_EQ(destroy_flow(handle), 0);
  EXPECT_EQ(destroy_flow(handle), ENOENT);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(UverbsRawPacket, AReceiveQueueHasStepsAndATableThatNeedsIt) {
  std::uint32_t wq = 0;
  ASSERT_EQ(program_.create_wq(pd_, cq_, {}, wq), 0);
  const auto modify_wq = [&](std::uint32_t mask, std::uint32_t state, std::uint32_t current) {
    const ib_uverbs_ex_modify_wq in{.attr_mask = mask,
                                    .wq_handle = wq,
                                    .wq_state = state,
                                    .curr_wq_state = current,
                                    .flags = 0,
                                    .flags_mask = 0};
    std::uint64_t nothing = 0;
    return write_command(program_.context(), IB_USER_VERBS_EX_CMD_MODIFY_WQ | kExtended, in,
                         nothing);
  };
  EXPECT_EQ(modify_wq(1, 3, 0), EINVAL) << "no state";
  EXPECT_EQ(modify_wq(3, 1, 1), EINVAL) << "it is in another";
  EXPECT_EQ(modify_wq(1, 1, 99), 0) << "what is not given is not looked at";
  EXPECT_EQ(modify_wq(3, 2, 1), 0);
  struct {
    std::uint32_t comp_mask = 0, log_size, queues[2];
  } in{.log_size = 1, .queues = {wq, wq}};
  ib_uverbs_ex_create_rwq_ind_table_resp table{};
  constexpr auto kCreateTable = IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL | kExtended;
  ASSERT_EQ(write_command(program_.context(), kCreateTable, in, table), 0);
  const auto scaling_qp = [&](std::uint64_t fields) {
    mlx5_ib_create_qp_rss rss{};
    rss.rx_hash_fields_mask = fields;
    rss.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
    rss.rx_key_len = 40;
    ib_uverbs_qp_cap caps{};
    std::uint32_t qpn = 0;
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
        .number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_)
        .number(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, table.ind_tbl_handle)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_RAW_PACKET})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn)
        .in(UVERBS_ATTR_UHW_IN, rss)
        .on(program_.context());
  };
  EXPECT_EQ(scaling_qp(0), EINVAL) << "to which queue, without a hash?";
  EXPECT_EQ(scaling_qp(MLX5_RX_HASH_SRC_IPV4), 0);
  EXPECT_EQ(scaling_qp(MLX5_RX_HASH_SRC_PORT_TCP), 0) << "the kernel does not ask of which IP";
  EXPECT_EQ(scaling_qp(1u << 20), 0) << "what has no name is not looked at";
  EXPECT_EQ(scaling_qp(MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_INNER), EOPNOTSUPP);
  in.log_size = 0;
  ASSERT_EQ(write_command(program_.context(), kCreateTable, in, table), 0);
  EXPECT_EQ(scaling_qp(0), 0) << "to its only queue";
  std::uint32_t events = 0;
  EXPECT_EQ(Call(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY)
                .number(UVERBS_ATTR_DESTROY_WQ_HANDLE, wq)
                .out(UVERBS_ATTR_DESTROY_WQ_RESP, events)
                .on(program_.context()),
            EBUSY);
}

// mlx5_ib_modify_wq.
TEST_F(UverbsRawPacket, AReceiveQueueChangesTheFlagsThatLinuxLooksAt) {
  std::uint32_t wq = 0;
  ASSERT_EQ(program_.create_wq(pd_, cq_, {}, wq), 0);
  const auto modify_wq = [&](std::uint32_t handle, std::uint32_t mask, std::uint32_t flags_mask) {
    const ib_uverbs_ex_modify_wq in{.attr_mask = mask,
                                    .wq_handle = handle,
                                    .wq_state = 1,
                                    .curr_wq_state = 0,
                                    .flags = flags_mask,
                                    .flags_mask = flags_mask};
    std::uint64_t nothing = 0;
    return write_command(program_.context(), IB_USER_VERBS_EX_CMD_MODIFY_WQ | kExtended, in,
                         nothing);
  };
  EXPECT_EQ(modify_wq(wq + 9, 0, 0), EINVAL) << "the mask comes first";
  EXPECT_EQ(modify_wq(wq + 9, 1, 0), ENOENT);
  ASSERT_EQ(modify_wq(wq, 1, 0), 0);
  EXPECT_EQ(modify_wq(wq, 4, IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING), EOPNOTSUPP);
  EXPECT_EQ(modify_wq(wq, 4, IB_UVERBS_WQ_FLAGS_SCATTER_FCS), 0);
  EXPECT_EQ(modify_wq(wq, 4, 1u << 31), 0);
  EXPECT_EQ(modify_wq(wq, 4, IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING), 0);
}

TEST_F(UverbsRawPacket, ClosingTheFileDestroysRemainingObjects) {
  const auto qp = create_qp(16, 16);
  std::uint32_t handle = 0;
  ASSERT_EQ(create(flow_to(qp, 1), handle), 0);
  ASSERT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
}

}  // namespace
}  // namespace softhca::uverbs
