// User contexts (DevX, mlx5 driver interface 7.11): the Ethernet objects of a process.

#include <gtest/gtest.h>

#include "connectx/command/user_context_host.h"
#include "connectx/ethernet/ethernet_host.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;
using Opcode = s::command_opcode;
using test::EthernetHost;

class UserContextEthernet : public ::testing::Test {
 protected:
  UserContextEthernet() : user_(create_uctx(host_, 1)), other_(create_uctx(host_, 1)) {}

  /// Makes an RQ and its CQ with the host's current uid.
  std::uint32_t create_rq() { return host_.create_rq(host_.create_cq()); }
  Code create_tir(std::uint32_t rqn) { return create_tir(rqn, host_.transport_domain); }
  Code create_tir(std::uint32_t rqn, std::uint32_t domain) {
    using In = s::create_tir_in;
    return host_
        .call<s::create_tir_out, In>(Opcode::CREATE_TIR,
                                     [&](auto in) {
                                       const auto context = in.sub(In::tir_context);
                                       context.set(s::tir_context::inline_rqn, rqn);
                                       context.set(s::tir_context::transport_domain, domain);
                                     })
        .status();
  }
  Code create_rqt(std::uint32_t rqn) {
    using In = s::create_rqt_in;
    Input<In> in(Opcode::CREATE_RQT, 0, 4);
    (*in).sub(In::rqt_context).set(s::rqt_context::rqt_max_size, 1);
    (*in).sub(In::rqt_context).set(s::rqt_context::rqt_actual_size, 1);
    constexpr auto kList = In::rqt_context.kOffset + s::rqt_context::rq_num_offset;
    util::store_be32(in.bytes().data() + kList, rqn);
    return host_.execute<s::create_rqt_out>(in).status();
  }
  Code create_sq(std::uint32_t cqn) {
    using In = s::create_sq_in;
    const auto ring = host_.allocate(4096);
    return host_
        .call<s::create_sq_out, In>(
            Opcode::CREATE_SQ,
            [&](auto in) {
              const auto context = in.sub(In::sq_context);
              context.set(s::sq_context::cqn, cqn);
              const auto wq = context.sub(s::sq_context::wq);
              wq.set(s::wq::wq_type, static_cast<std::uint32_t>(s::wq_type::CYCLIC));
              wq.set(s::wq::pd, host_.pd);
              wq.set(s::wq::uar_page, host_.uar);
              wq.set(s::wq::log_wq_sz, 2);
              wq.set(s::wq::log_wq_stride, 6);
            },
            FakeHost::page_list(ring, 4096))
        .status();
  }
  /// Replaces the host's PD and transport domain with those of the context `uid`.
  void own(std::uint16_t uid) {
    As as(host_, uid);
    host_.pd = host_.allocate_pd();
    host_.transport_domain = host_.allocate_transport_domain();
  }

  EthernetHost host_;
  std::uint16_t user_;
  std::uint16_t other_;
};

TEST_F(UserContextEthernet, ItsTirsAndTablesOfRqsLeadToItsOwnRqs) {
  own(other_);
  std::uint32_t foreign = 0;
  {
    As as(host_, other_);
    foreign = create_rq();
  }
  own(user_);
  As as(host_, user_);
  const auto rqn = create_rq();
  EXPECT_EQ(create_tir(rqn), Code::OK);
  EXPECT_EQ(create_tir(foreign), Code::BAD_RESOURCE);
  EXPECT_EQ(create_rqt(rqn), Code::OK);
  EXPECT_EQ(create_rqt(foreign), Code::BAD_RESOURCE);
}

TEST_F(UserContextEthernet, ItsFlowsLeadToItsOwnTirs) {
  const auto kernels_tir = host_.create_direct_tir(create_rq());
  own(user_);
  As as(host_, user_);
  const auto tir = host_.create_direct_tir(create_rq());
  const auto table = host_.create_table(3, 4);
  const auto group = host_.create_group(table, 0, 15);
  constexpr auto kTir = s::destination_type::TIR;
  EXPECT_EQ(host_.set_flow(table, group, 0, {{kTir, kernels_tir}}).status(), Code::BAD_RESOURCE);
  EXPECT_EQ(host_.set_flow(table, group, 0, {{kTir, tir}}).status(), Code::OK);
  host_.uid = other_;
  EXPECT_EQ(host_.set_flow(table, group, 1, {{kTir, tir}}).status(), Code::BAD_RESOURCE);
  host_.uid = 0;
  EXPECT_EQ(host_.set_flow(table, group, 1, {{kTir, tir}}).status(), Code::OK);
}

TEST_F(UserContextEthernet, ItsTirsNeedNoTransportDomain) {
  const auto kernels_rq = create_rq();
  EXPECT_EQ(create_tir(kernels_rq, 0), Code::BAD_RESOURCE);
  const auto kernels_domain = host_.transport_domain;
  own(user_);
  As as(host_, user_);
  const auto rqn = create_rq();
  EXPECT_EQ(create_tir(rqn, 0), Code::OK);
  EXPECT_EQ(create_tir(rqn, kernels_domain), Code::BAD_RESOURCE);
}

TEST_F(UserContextEthernet, ItCountsAndReadsWithItsOwnFlowCounters) {
  using In = s::query_flow_counter_in;
  using Out = s::query_flow_counter_out;
  const auto alloc = [&] {
    using AllocOut = s::alloc_flow_counter_out;
    const auto reply =
        host_.call<AllocOut, s::alloc_flow_counter_in>(Opcode::ALLOC_FLOW_COUNTER, [](auto) {});
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<AllocOut>().get(AllocOut::flow_counter_id);
  };
  const auto query = [&](std::uint32_t id) {
    return host_
        .call<Out, In>(
            Opcode::QUERY_FLOW_COUNTER, [&](auto in) { in.set(In::flow_counter_id, id); }, {}, 0,
            Out::flow_statistics_size)
        .status();
  };
  const auto kernels = alloc();
  own(user_);
  As as(host_, user_);
  const auto mine = alloc();
  const auto table = host_.create_table(3, 4);
  const auto group = host_.create_group(table, 0, 15);
  host_.flow_counters = {mine, kernels};
  EXPECT_EQ(host_.set_flow(table, group, 0, {}).status(), Code::BAD_RESOURCE);
  host_.flow_counters = {mine};
  EXPECT_EQ(host_.set_flow(table, group, 0, {}).status(), Code::OK);
  EXPECT_EQ(query(mine), Code::OK);
  EXPECT_EQ(query(kernels), Code::BAD_RESOURCE);
  host_.uid = other_;
  EXPECT_EQ(query(mine), Code::BAD_RESOURCE);
  host_.uid = 0;
  EXPECT_EQ(query(mine), Code::OK);
}

// If no root is set, the table of level 0 is the root, so a process's table would receive the
// kernel's packets.
TEST_F(UserContextEthernet, ATableOfLevelZeroIsTheKernels) {
  using In = s::create_flow_table_in;
  As as(host_, user_);
  const auto reply = host_.call<s::create_flow_table_out, In>(
      Opcode::CREATE_FLOW_TABLE,
      [](auto in) { in.sub(In::flow_table_context).set(s::flow_table_context::level, 0); });
  EXPECT_EQ(reply.status(), Code::BAD_PARAM) << reply.reason();
}

TEST_F(UserContextEthernet, ItsSqHoldsNoDoorbellPageOfAnother) {
  own(user_);
  {
    As as(host_, other_);
    host_.uar = host_.allocate_uar();
  }
  As as(host_, user_);
  const auto foreign = host_.uar;
  host_.uar = host_.allocate_uar();
  const auto cqn = host_.create_cq();
  EXPECT_EQ(create_sq(cqn), Code::OK);
  host_.uar = foreign;
  EXPECT_EQ(create_sq(cqn), Code::BAD_RESOURCE);
}

TEST_F(UserContextEthernet, ItsRqsCountInNoSetOfAnother) {
  const auto foreign = allocate_q_counter(host_, other_);
  own(user_);
  As as(host_, user_);
  const auto cqn = host_.create_cq();
  const auto rqn = host_.create_rq(cqn);
  const auto ring = host_.allocate(4096);
  for (const auto set : {foreign, allocate_q_counter(host_, user_)}) {
    const auto want = set == foreign ? Code::BAD_RESOURCE : Code::OK;
    const auto made = host_.call<s::create_rq_out, s::create_rq_in>(
        Opcode::CREATE_RQ,
        [&](auto in) {
          const auto context = in.sub(s::create_rq_in::rq_context);
          context.set(s::rq_context::cqn, cqn);
          context.set(s::rq_context::counter_set_id, set);
          const auto wq = context.sub(s::rq_context::wq);
          wq.set(s::wq::wq_type, static_cast<std::uint32_t>(s::wq_type::CYCLIC));
          wq.set(s::wq::pd, host_.pd);
          wq.set(s::wq::log_wq_sz, 3);
          wq.set(s::wq::log_wq_stride, 5);
        },
        FakeHost::page_list(ring, 4096));
    EXPECT_EQ(made.status(), want) << made.reason();
    constexpr auto kReady = static_cast<std::uint32_t>(s::rq_state::RDY);
    const auto changed =
        host_.call<s::modify_rq_out, s::modify_rq_in>(Opcode::MODIFY_RQ, [&](auto in) {
          in.set(s::modify_rq_in::rqn, rqn);
          in.set(s::modify_rq_in::rq_state, kReady);
          in.set(s::modify_rq_in::modify_bitmask, 8);  // RQ_COUNTER_SET_ID
          const auto context = in.sub(s::modify_rq_in::rq_context);
          context.set(s::rq_context::state, kReady);
          context.set(s::rq_context::counter_set_id, set);
        });
    EXPECT_EQ(changed.status(), want) << changed.reason();
  }
}

TEST_F(UserContextEthernet, WithoutRawTxItMakesNoSq) {
  own(user_);
  {
    As as(host_, user_);
    EXPECT_EQ(create_sq(host_.create_cq()), Code::OK);
  }
  const auto plain = create_uctx(host_, 0);
  own(plain);
  As as(host_, plain);
  EXPECT_EQ(create_sq(host_.create_cq()), Code::BAD_PARAM);
}

}  // namespace
}  // namespace softhca::connectx
