// Raw packet QPs, flows that lead to them, and tables of receive queues (host-door contract 4.7,
// 4.12), with the errno of the kernel.
#include <gtest/gtest.h>

#include <cerrno>

#include "spec/connectx/flow_table.h"
#include "uverbs/devx_program.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr std::uint32_t kState = 1, kPort = 0x20;
constexpr std::uint8_t kReset = 0, kInit = 1, kRtr = 2, kRts = 3, kError = 6;

constexpr std::uint32_t kDoNotTrap = 2;  // of ib_flow_flags

class UverbsRawPacket : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.get_context(true), 0);
    pd_ = program_.pd();
    page_ = program_.uar();
    mlx5_ib_create_cq own{};
    own.buf_addr = program_.memory();
    own.db_addr = record();
    own.cqe_size = 64;
    own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    own.uar_page_index = static_cast<std::uint16_t>(page_);
    mlx5_ib_create_cq_resp numbers{};
    std::uint32_t last = 0;
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    ASSERT_EQ(call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
                  .in(UVERBS_ATTR_CREATE_CQ_CQE, std::uint32_t{63})
                  .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
                  .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
                  .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
                  .in(UVERBS_ATTR_UHW_IN, own)
                  .out(UVERBS_ATTR_UHW_OUT, numbers)
                  .on(program_.context()),
              0);
    cq_ = call.made(0);
  }
  std::uint64_t record() const { return program_.memory() + Program::kMemory - kPage; }

  struct Qp {
    Errno wrong = 0;
    std::uint32_t handle = 0, number = 0;
    mlx5_ib_create_qp_resp told{};
  };
  Qp create_qp(std::uint32_t send_blocks, std::uint32_t receive_entries) {
    Qp qp;
    mlx5_ib_create_qp own{};
    own.buf_addr = program_.memory() + 8 * kPage;
    own.sq_buf_addr = program_.memory() + 16 * kPage;
    own.db_addr = record() + 64;
    own.sq_wqe_count = send_blocks;
    own.rq_wqe_count = receive_entries;
    own.rq_wqe_shift = 4;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
    own.bfreg_index = page_;
    ib_uverbs_qp_cap caps{};
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
  Errno destroy_qp(const Qp& qp) {
    ib_uverbs_destroy_qp_resp out{};
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .number(UVERBS_ATTR_DESTROY_QP_HANDLE, qp.handle)
        .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
        .on(program_.context());
  }

  /// ibv_create_flow of frames to one MAC.
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

  /// mlx5dv_create_flow_matcher, of the last byte of the destination.
  struct Matcher {
    Errno wrong = 0;
    std::uint32_t handle = 0;
  };
  Matcher matcher(std::uint8_t table, std::uint16_t priority = 0) {
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
  /// mlx5dv_create_flow; `more` adds where frames go, and what else is wanted.
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
  Errno read_counters(std::uint32_t handle, std::array<std::uint64_t, 2>& values) {
    return Call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ)
        .number(UVERBS_ATTR_READ_COUNTERS_HANDLE, handle)
        .out(UVERBS_ATTR_READ_COUNTERS_BUFF, values)
        .in(UVERBS_ATTR_READ_COUNTERS_FLAGS, std::uint32_t{0})
        .on(program_.context());
  }
  /// ibv_create_flow of all frames to one MAC, which counts.
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

// Linux: who does not trap comes before who does, of the same priority.
TEST_F(UverbsRawPacket, WhatAFlowLetsPassGoesOnToOthers) {
  const auto one = create_qp(16, 16), two = create_qp(16, 16);
  std::uint32_t passes = 0, traps = 0, sniffs = 0;
  auto flow = flow_to(one, 1);
  flow.flags = kDoNotTrap;
  ASSERT_EQ(create(flow, passes), 0);
  ASSERT_EQ(create(flow_to(two, 1), traps), 0);
  flow = {.qp_handle = one.handle, .type = 3, .size = 0, .count = 0};
  ASSERT_EQ(create(flow, sniffs), 0);
  flow.flags = kDoNotTrap;
  std::uint32_t none = 0;
  EXPECT_EQ(create(flow, none), EINVAL) << "a sniffer traps nothing anyway";
  EXPECT_EQ(destroy_qp(one), EBUSY);
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
  EXPECT_EQ(destroy(), 0);
}

TEST_F(UverbsRawPacket, FlowsOfWhatIsSentAllowDropOrCount) {
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
  EXPECT_EQ(create_matched(sent, 1, [](Call&) {}), EEXIST);
  EXPECT_EQ(create_matched(sent, 2, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP)), 0);
  EXPECT_EQ(create_matched(sent, 3, counting(counter.handle)), 0);
  EXPECT_EQ(create_matched(sent, 4, counting(qp.handle)), ENOENT);
  EXPECT_EQ(program_.destroy(counter.handle), EBUSY) << "a flow counts by it";
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
  EXPECT_EQ(matcher(2).wrong, EOPNOTSUPP) << "there is no FDB";
}

TEST_F(UverbsRawPacket, TellsItsNumbersToWhoHasDevx) {
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
  EXPECT_EQ(modify(qp, kState, kInit), EINVAL) << "without a port";
  EXPECT_EQ(modify(qp, kState | kPort, kInit), 0);
  EXPECT_EQ(modify(qp, kState, kRts), EINVAL);
  EXPECT_EQ(modify(qp, kState, kRtr), 0);
  EXPECT_EQ(modify(qp, kState | 0x100, kRts), EINVAL) << "it has no MTU";
  EXPECT_EQ(modify(qp, kState, kRts), 0);
  EXPECT_EQ(modify(qp, kState, kError), 0);
  EXPECT_EQ(modify(qp, kState, kReset), 0);
  EXPECT_EQ(modify(qp, kState | kPort, kInit), 0);
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
  flow.priority = 15;
  EXPECT_EQ(create(flow, handle), ENOMEM);
  flow = flow_to(qp, 1);
  flow.spec_type = 0x50;  // VXLAN
  EXPECT_EQ(create(flow, handle), EOPNOTSUPP);
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
  flow.flags = 1;
  EXPECT_EQ(create(flow, handle), EOPNOTSUPP) << "of old";
  flow = flow_to(qp, 1);
  flow.qp_handle = pd_;
  EXPECT_EQ(create(flow, handle), EINVAL);
  const auto sender = create_qp(16, 0);
  EXPECT_EQ(create(flow_to(sender, 1), handle), EINVAL) << "it receives nothing";
}

TEST_F(UverbsRawPacket, WhatAProgramLeavesIsGivenBack) {
  const auto qp = create_qp(16, 16);
  std::uint32_t handle = 0;
  ASSERT_EQ(create(flow_to(qp, 1), handle), 0);
  ASSERT_EQ(modify(qp, kState | kPort, kInit), 0);
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
}

}  // namespace
}  // namespace softhca::uverbs
