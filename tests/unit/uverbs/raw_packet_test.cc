// Raw packet QPs, their steering flows and receive-queue tables (host-door contract 4.7, 4.12),
// with the kernel's errno.
#include <gtest/gtest.h>

#include <cerrno>

#include "spec/connectx/flow_table.h"
#include "uverbs/devx_program.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr std::uint32_t kRateLimit = 1u << 25;
constexpr std::uint8_t kReset = 0;
constexpr std::uint32_t kDoNotTrap = 2;  // in ib_flow_flags

class UverbsRawPacket : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.reopen(true), 0);
    pd_ = program_.pd();
    page_ = program_.uar();
    cq_ = program_.create_cq(page_);
  }
  std::uint64_t record() const { return program_.memory() + Program::kMemory - kPage; }

  struct Qp {
    Errno wrong = 0;
    std::uint32_t handle = 0, number = 0;
    mlx5_ib_create_qp_resp told{};
  };
  Qp create_qp(std::uint32_t send_blocks, std::uint32_t receive_entries, std::uint32_t flags = 0) {
    Qp qp;
    mlx5_ib_create_qp own{};
    own.buf_addr = program_.memory() + 8 * kPage;
    own.sq_buf_addr = program_.memory() + 16 * kPage;
    own.db_addr = record() + 64;
    own.sq_wqe_count = send_blocks;
    own.rq_wqe_count = receive_entries;
    own.rq_wqe_shift = receive_entries != 0 ? 4 : 0;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | flags;
    own.bfreg_index = page_;
    ib_uverbs_qp_cap caps{};
    caps.max_recv_wr = receive_entries;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    qp.wrong = call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
                   .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_)
                   .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq_)
                   .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq_)
                   .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
                   .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
                   .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_RAW_PACKET})
                   .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
                   .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp.number)
                   .in(UVERBS_ATTR_UHW_IN, own)
                   .out(UVERBS_ATTR_UHW_OUT, qp.told)
                   .on(program_.context());
    qp.handle = call.made(0);
    return qp;
  }
  Errno modify(const Qp& qp, std::uint32_t mask, std::uint8_t state) {
    QpAttributes in{};
    in.qp_handle = qp.handle;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    std::array<std::byte, 8> out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, out);
  }
  /// Sends the extended form, with a rate limit.
  Errno limit(const Qp& qp, std::uint32_t mask, std::uint8_t state, std::uint32_t rate) {
    struct {
      QpAttributes base;
      std::uint32_t rate_limit, reserved;
    } in{};
    in.base.qp_handle = qp.handle;
    in.base.attr_mask = mask;
    in.base.qp_state = state;
    in.base.port_num = 1;
    in.rate_limit = rate;
    ib_uverbs_ex_modify_qp_resp out{};
    return write_command(program_.context(),
                         IB_USER_VERBS_EX_CMD_MODIFY_QP | IB_USER_VERBS_CMD_FLAG_EXTENDED, in, out);
  }
  Errno destroy_qp(const Qp& qp) {
    ib_uverbs_destroy_qp_resp out{};
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .number(UVERBS_ATTR_DESTROY_QP_HANDLE, qp.handle)
        .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
        .on(program_.context());
  }

  /// ibv_create_flow for frames to one MAC.
  struct Flow {
    std::uint32_t comp_mask = 0, qp_handle = 0;
    std::uint32_t type = 0;
    std::uint16_t size = 40, priority = 0;
    std::uint8_t count = 1, reserved[2] = {}, port = 1;
    std::uint32_t flags = 0;
    std::uint32_t spec_type = 0x20;
    std::uint16_t spec_size = 40, spec_reserved = 0;
    ib_uverbs_flow_eth_filter value{}, mask{};
  };
  Flow flow_to(const Qp& qp, std::uint8_t mac) {
    Flow flow;
    flow.qp_handle = qp.handle;
    flow.value.dst_mac[5] = mac;
    std::fill(std::begin(flow.mask.dst_mac), std::end(flow.mask.dst_mac), 0xff);
    return flow;
  }
  Errno create(const Flow& flow, std::uint32_t& handle) {
    ib_uverbs_create_flow_resp out{};
    const auto wrong =
        write_command(program_.context(), IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended, flow, out);
    handle = out.flow_handle;
    return wrong;
  }
  Errno destroy_flow(std::uint32_t handle) {
    return Call(UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY)
        .number(UVERBS_ATTR_DESTROY_FLOW_HANDLE, handle)
        .on(program_.context());
  }

  /// mlx5dv_create_flow_matcher on the last byte of the destination.
  struct Matcher {
    Errno wrong = 0;
    std::uint32_t handle = 0;
  };
  Matcher matcher(std::uint64_t table, std::uint16_t priority = 0) {
    std::array<std::byte, 64> mask{};
    mask[5 + 4 * 2] = std::byte{0xff};
    Call call(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
    Matcher made;
    made.wrong = call.number(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, mask)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, priority)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, std::uint8_t{1})
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, table)
                     .on(program_.context());
    made.handle = call.made(0);
    return made;
  }
  /// mlx5dv_create_flow. `more` adds the destination and other attributes.
  template <class More>
  Errno create_matched(const Matcher& matcher, std::uint8_t value, More&& more) {
    std::array<std::byte, 64> bytes{};
    bytes[5 + 4 * 2] = std::byte{value};
    Call call(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
    call.number(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0)
        .in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, bytes)
        .number(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher.handle);
    more(call);
    return call.on(program_.context());
  }
  static auto flags(std::uint32_t flags) {
    return [flags](Call& call) { call.in(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, flags); };
  }
  std::uint32_t create_counters() {
    Call call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
    EXPECT_EQ(call.number(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0).on(program_.context()), 0);
    return call.made(0);
  }
  Errno read_counters(std::uint32_t handle, std::span<std::uint64_t> values) {
    return Call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ)
        .number(UVERBS_ATTR_READ_COUNTERS_HANDLE, handle)
        .add(UVERBS_ATTR_READ_COUNTERS_BUFF, static_cast<std::uint16_t>(values.size_bytes()),
             reinterpret_cast<std::uint64_t>(values.data()))
        .in(UVERBS_ATTR_READ_COUNTERS_FLAGS, std::uint32_t{0})
        .on(program_.context());
  }
  /// ibv_create_flow of all frames to one MAC, with counters.
  Errno create_counting(const Qp& qp, std::uint32_t counters, std::uint32_t& flow,
                        std::uint32_t places = 2) {
    struct {
      Flow flow;
      std::uint32_t type = 0x1003;
      std::uint16_t size = 16, reserved = 0;
      std::uint32_t handle, reserved1 = 0;
    } in{.flow = flow_to(qp, 1), .handle = counters};
    in.flow.count = 2;
    in.flow.size += 16;
    const mlx5_ib_flow_counters_desc descriptions[] = {{0, 1}, {1, 0}};
    struct {
      std::uint32_t count = 1, reserved = 0;
      mlx5_ib_flow_counters_data data{};
    } own;
    own.data.counters_data = reinterpret_cast<std::uint64_t>(descriptions);
    own.data.ncounters = places;
    ib_uverbs_create_flow_resp out{};
    const auto wrong =
        Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .in(UVERBS_ATTR_WRITE_CMD, std::uint32_t{IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended})
            .in(UVERBS_ATTR_CORE_IN, in)
            .out(UVERBS_ATTR_CORE_OUT, out)
            .in(UVERBS_ATTR_UHW_IN, own)
            .on(program_.context());
    flow = out.flow_handle;
    return wrong;
  }

  DevxProgram program_;
  std::uint32_t pd_ = 0, page_ = 0, cq_ = 0;
};

// Linux: at equal priority, a rule that does not trap goes before one that does.
TEST_F(UverbsRawPacket, WhatAFlowLetsPassGoesOnToOthers) {
  const auto one = create_qp(16, 16), two = create_qp(16, 16);
  std::uint32_t passes = 0, traps = 0, sniffs = 0;
  auto flow = flow_to(one, 1);
  flow.flags = kDoNotTrap;
  ASSERT_EQ(create(flow, passes), 0);
  ASSERT_EQ(create(flow_to(two, 1), traps), 0);
  flow = {.qp_handle = one.handle, .type = 3, .size = 0, .count = 0};
  ASSERT_EQ(create(flow, sniffs), 0);
  EXPECT_EQ(destroy_qp(one), EBUSY);
  EXPECT_EQ(destroy_flow(sniffs), 0);
  flow.flags = kDoNotTrap;
  ASSERT_EQ(create(flow, sniffs), 0) << "a sniffer traps nothing anyway";
  EXPECT_EQ(destroy_flow(sniffs), 0);
  EXPECT_EQ(destroy_flow(passes), 0);
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_flow(traps), 0);
}

TEST_F(UverbsRawPacket, CountersAreOfFlowsAndReadAsTheyWereAttached) {
  const auto qp = create_qp(16, 16);
  const auto counters = create_counters();
  std::array<std::uint64_t, 2> values{7, 7};
  EXPECT_EQ(read_counters(counters, values), EINVAL) << "bound to no flow";
  std::array<std::uint64_t, 0> none{};
  EXPECT_EQ(read_counters(counters, none), EINVAL) << "nor are 0 of them";
  std::uint32_t flow = 0, other = 0;
  EXPECT_EQ(create_counting(qp, counters, flow, 3), EINVAL) << "of packets and bytes only";
  EXPECT_EQ(create_counting(qp, counters + 9, flow), ENOENT);
  ASSERT_EQ(create_counting(qp, counters, flow), 0);
  EXPECT_EQ(create_counting(qp, counters, other), EINVAL) << "their places are told already";
  EXPECT_EQ(read_counters(counters, values), 0);
  EXPECT_EQ(values, (std::array<std::uint64_t, 2>{0, 0}));
  const auto destroy = [&] {
    return Call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY)
        .number(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, counters)
        .on(program_.context());
  };
  EXPECT_EQ(destroy(), EBUSY);
  EXPECT_EQ(destroy_flow(flow), 0);
  // Linux: mlx5_ib_counters_clear_description, with the last flow.
  EXPECT_EQ(create_counting(qp, counters, flow, 0), EINVAL) << "their places are to be told anew";
  ASSERT_EQ(create_counting(qp, counters, flow), 0);
  EXPECT_EQ(destroy_flow(flow), 0);
  EXPECT_EQ(destroy(), 0);
}

TEST_F(UverbsRawPacket, FlowsOfWhatIsSentAllowOrDrop) {
  const auto qp = create_qp(16, 16);
  const auto sent = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX);
  ASSERT_EQ(sent.wrong, 0);
  const auto counter =
      program_.create(driver::connectx::Request<softhca::spec::connectx::alloc_flow_counter_in>(
          softhca::spec::connectx::command_opcode::ALLOC_FLOW_COUNTER));
  ASSERT_EQ(counter.wrong, 0);
  const auto counting = [&](std::uint32_t handle) {
    return [handle](Call& call) { call.in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, handle); };
  };
  EXPECT_EQ(create_matched(sent, 1, [](Call&) {}), 0);
  EXPECT_EQ(create_matched(sent, 1, [](Call&) {}), 0) << "the same again";
  EXPECT_EQ(create_matched(sent, 1, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP)), EEXIST);
  EXPECT_EQ(create_matched(sent, 2, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP)), 0);
  EXPECT_EQ(create_matched(sent, 3, counting(counter.handle)), EINVAL)
      << "PRM 7.11.3.5: counters are for what is received";
  const auto at_offset = [&](Call& call) {
    counting(counter.handle)(call);
    call.in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, std::uint32_t{1});
  };
  EXPECT_EQ(create_matched(sent, 7, at_offset), EINVAL) << "it is one counter";
  EXPECT_EQ(create_matched(sent, 4, counting(qp.handle)), EINVAL) << "a QP counts nothing";
  EXPECT_EQ(program_.destroy(counter.handle), 0) << "no flow counts by it";
  const auto to_qp = [&](Call& call) { call.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, qp.handle); };
  EXPECT_EQ(create_matched(sent, 5, to_qp), EINVAL) << "it goes out, and not in";
  EXPECT_EQ(create_matched(sent, 6, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)), EINVAL);

  const auto received = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX);
  EXPECT_EQ(create_matched(received, 1, to_qp), 0);
  EXPECT_EQ(create_matched(received, 2, [](Call&) {}), EINVAL) << "it is to go somewhere";
  EXPECT_EQ(create_matched(received, 3, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)), 0);
  EXPECT_EQ(create_matched(received, 4,
                           flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS |
                                 MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP)),
            EINVAL);
  EXPECT_EQ(create_matched(received, 5, flags(4)), EINVAL) << "there is no such flag";
  EXPECT_EQ(matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB).wrong, EINVAL) << "there is no e-switch";
  EXPECT_EQ(matcher(5).wrong, EINVAL) << "there is no such table";
}

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

// A hostile program: the device enforces its limit on destinations, and goes on.
TEST_F(UverbsRawPacket, FlowsOfTheSameFramesHaveAnEnd) {
  const auto qp = create_qp(0, 16);
  std::vector<std::uint32_t> all;
  Errno wrong = 0;
  while (wrong == 0 && all.size() != 2000) {
    std::uint32_t handle = 0;
    wrong = create(flow_to(qp, 1), handle);
    if (wrong == 0) all.push_back(handle);
  }
  EXPECT_EQ(wrong, EINVAL);
  EXPECT_EQ(all.size(), 256u) << "log_max_destination";
  for (const auto handle : all) EXPECT_EQ(destroy_flow(handle), 0);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(UverbsRawPacket, HearsItselfAndItsGroupsAsItAsks) {
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

TEST_F(UverbsRawPacket, FlowsThatCompareTheSameLeadToAllTheirQps) {
  const auto one = create_qp(0, 16), two = create_qp(0, 16);
  std::uint32_t first = 0, second = 0, other = 0;
  EXPECT_EQ(create(flow_to(one, 1), first), 0);
  EXPECT_EQ(create(flow_to(two, 1), second), 0);
  EXPECT_EQ(create(flow_to(two, 2), other), 0);
  EXPECT_EQ(destroy_flow(first), 0);
  EXPECT_EQ(destroy_qp(one), 0) << "the other flow does not lead to it";
  EXPECT_EQ(destroy_flow(second), 0);
  EXPECT_EQ(destroy_flow(other), 0);
}

TEST_F(UverbsRawPacket, FlowsAreRefusedAsTheKernelRefusesThem) {
  const auto qp = create_qp(16, 16);
  std::uint32_t handle = 0;
  auto flow = flow_to(qp, 1);
  flow.priority = 16;
  EXPECT_EQ(create(flow, handle), ENOMEM);
  flow.priority = 15;
  EXPECT_EQ(create(flow, handle), 0);
  flow = flow_to(qp, 1);
  flow.spec_type = 0x50;
  EXPECT_EQ(create(flow, handle), EINVAL) << "a mask of VXLAN has 4 bytes";
  flow = flow_to(qp, 1);
  flow.spec_type = 0x21;
  EXPECT_EQ(create(flow, handle), EINVAL) << "there is no such specification";
  flow = flow_to(qp, 1);
  flow.spec_size = 39;
  EXPECT_EQ(create(flow, handle), EINVAL);
  flow = flow_to(qp, 1);
  flow.count = 2;
  EXPECT_EQ(create(flow, handle), EINVAL) << "there is one";
  flow = flow_to(qp, 1);
  flow.port = 2;
  EXPECT_EQ(create(flow, handle), EINVAL);
  flow = flow_to(qp, 1);
  flow.count = 11;
  EXPECT_EQ(create(flow, handle), EINVAL) << "IB_FLOW_SPEC_SUPPORT_LAYERS";
  flow = flow_to(qp, 1);
  flow.flags = 1;
  EXPECT_EQ(create(flow, handle), EINVAL) << "of old";
  flow = flow_to(qp, 1);
  flow.qp_handle = pd_;
  EXPECT_EQ(create(flow, handle), EINVAL);
  const auto sender = create_qp(16, 0);
  EXPECT_EQ(create(flow_to(sender, 1), handle), EINVAL) << "it receives nothing";
}

// parse_flow_attr and is_valid_ethertype of mlx5_ib.
TEST_F(UverbsRawPacket, SpecificationsOfAFlowMayNotContradictEachOther) {
  struct {
    Flow flow;
    std::uint32_t type = 0x30;
    std::uint16_t size = 32, reserved = 0;
    ib_uverbs_flow_ipv4_filter value{}, mask{};
    std::uint32_t port_type = 0x41;
    std::uint16_t port_size = 16, port_reserved = 0;
    ib_uverbs_flow_tcp_udp_filter port_value{}, port_mask{};
  } in{.flow = flow_to(create_qp(16, 16), 1)};
  in.flow.count = 3;
  in.flow.size = 40 + 32 + 16;
  const auto try_it = [&] {
    ib_uverbs_create_flow_resp out{};
    return write_command(program_.context(), IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended, in, out);
  };
  EXPECT_EQ(try_it(), 0);
  in.mask.proto = 0xff;
  in.value.proto = 6;
  EXPECT_EQ(try_it(), EINVAL) << "TCP, and ports of UDP";
  in.value.proto = 17;
  EXPECT_EQ(try_it(), 0);
  in.flow.mask.ether_type = 0xffff;
  in.flow.value.ether_type = __builtin_bswap16(0x86dd);
  EXPECT_EQ(try_it(), EINVAL) << "IPv6, and addresses of IPv4";
  in.flow.value.ether_type = __builtin_bswap16(0x0800);
  EXPECT_EQ(try_it(), 0);
  in.mask.ttl = 1;
  EXPECT_EQ(try_it(), EOPNOTSUPP);
  in.flow.type = 1;
  EXPECT_EQ(try_it(), 0) << "the default flow takes all frames, whatever is said of them";
}

TEST_F(UverbsRawPacket, AVerbsFlowOfWhatIsSentIsAllowed) {
  auto flow = flow_to(create_qp(16, 16), 1);
  flow.flags = 4;  // IB_FLOW_ATTR_FLAGS_EGRESS
  std::uint32_t handle = 0;
  ASSERT_EQ(create(flow, handle), 0);
  EXPECT_EQ(destroy_flow(handle), 0);
  flow.type = 1;
  EXPECT_EQ(create(flow, handle), EINVAL) << "all that is received";
}

// mlx5_ib_matcher_ns creates one, but raw_fs_rule_add finds no table.
TEST_F(UverbsRawPacket, AMatcherOfRdmaIsMadeAndHasNoFlows) {
  const auto qp = create_qp(16, 16);
  const auto to_qp = [&](Call& call) { call.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, qp.handle); };
  const auto rdma = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX);
  ASSERT_EQ(rdma.wrong, 0);
  EXPECT_EQ(create_matched(rdma, 1, to_qp), EOPNOTSUPP);
  const auto last = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX, 65535);
  ASSERT_EQ(last.wrong, 0);
  EXPECT_EQ(create_matched(last, 1, to_qp), ENOMEM);
}

TEST_F(UverbsRawPacket, AReceiveQueueHasStepsAndATableThatNeedsIt) {
  mlx5_ib_create_wq own{};
  own.buf_addr = program_.memory() + 8 * kPage;
  own.db_addr = record() + 64;
  own.rq_wqe_count = 16;
  own.rq_wqe_shift = 4;
  std::uint32_t wr = 16, sge = 1, number = 0;
  Call create(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE);
  ASSERT_EQ(create.number(UVERBS_ATTR_CREATE_WQ_HANDLE, 0)
                .number(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, pd_)
                .number(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, cq_)
                .in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, std::uint64_t{9})
                .in(UVERBS_ATTR_CREATE_WQ_TYPE, std::uint32_t{0})
                .in(UVERBS_ATTR_CREATE_WQ_MAX_WR, wr)
                .in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, sge)
                .out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, wr)
                .out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, sge)
                .out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, number)
                .in(UVERBS_ATTR_UHW_IN, own)
                .on(program_.context()),
            0);
  const auto wq = create.made(0);
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

TEST_F(UverbsRawPacket, WhatAProgramLeavesIsGivenBack) {
  const auto qp = create_qp(16, 16);
  std::uint32_t handle = 0;
  ASSERT_EQ(create(flow_to(qp, 1), handle), 0);
  ASSERT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
}

}  // namespace
}  // namespace softhca::uverbs
