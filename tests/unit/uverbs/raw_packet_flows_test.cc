// Steering flows of raw packet QPs (kernel interface 4.12), with the kernel's errno.
#include <gtest/gtest.h>

#include <cerrno>

#include "spec/connectx/flow_table.h"
#include "uverbs/raw_packet_program.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kDoNotTrap = 2;  // in ib_flow_flags

// Linux: at equal priority, a rule that does not trap goes before one that does.
TEST_F(UverbsRawPacket, FramesThatAFlowDoesNotTrapGoOnToOtherFlows) {
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

// uverbs_get_flags32 in UVERBS_METHOD_COUNTERS_READ.
TEST_F(UverbsRawPacket, FlagsOfAReadOfCountersThatHaveNoNameAreInvalid) {
  const auto qp = create_qp(16, 16);
  const auto counters = create_counters();
  std::uint32_t flow = 0;
  ASSERT_EQ(create_counting(qp, counters, flow), 0);
  std::array<std::uint64_t, 2> values{};
  EXPECT_EQ(read_counters(counters, values, IB_UVERBS_READ_COUNTERS_PREFER_CACHED), 0);
  EXPECT_EQ(read_counters(counters, values, 2), EINVAL);
  EXPECT_EQ(read_counters(counters, values, 1u << 31), EINVAL);
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
  EXPECT_EQ(create_matched(sent, 6, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)), EOPNOTSUPP)
      << "mlx5_add_flow_rules: no table follows";

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

// mlx5_ib_create_flow leads frames to the QP's TIR only if they are received and not dropped.
TEST_F(UverbsRawPacket, AVerbsFlowOfWhatIsSentNeedsNoReceiveQueue) {
  auto flow = flow_to(create_qp(16, 0), 1);
  std::uint32_t handle = 0;
  EXPECT_EQ(create(flow, handle), EINVAL) << "no queue receives";
  flow.flags = 4;  // IB_FLOW_ATTR_FLAGS_EGRESS
  EXPECT_EQ(create(flow, handle), 0);
}

// mlx5_add_flow_rules: frames go on only from tables of received frames.
TEST_F(UverbsRawPacket, WhatIsSentDoesNotGoOnToOtherFlows) {
  auto flow = flow_to(create_qp(16, 16), 1);
  flow.flags = 2;  // IB_FLOW_ATTR_FLAGS_DONT_TRAP
  std::uint32_t handle = 0;
  EXPECT_EQ(create(flow, handle), 0);
  flow.flags = 2 | 4;
  EXPECT_EQ(create(flow, handle), EOPNOTSUPP);
  const auto sent = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX);
  ASSERT_EQ(sent.wrong, 0);
  EXPECT_EQ(create_matched(sent, 1, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)),
            EOPNOTSUPP);
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

}  // namespace
}  // namespace softhca::uverbs
