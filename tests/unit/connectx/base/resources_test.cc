// PDs, UARs, transport domains, XRC domains, Q counters (PRM 12.3.13 to 12.3.19).

#include "connectx/base/resources.h"

#include <gtest/gtest.h>

#include <set>

#include "connectx/fake_host.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

class ResourcesTest : public testing::Test {
 protected:
  ResourcesTest() { host.initialize(); }
  template <class In, class Out, class Field>
  std::uint32_t allocate(Opcode opcode, Field field) {
    Input<In> in(opcode);
    const auto reply = host.execute<Out>(in);
    EXPECT_TRUE(reply.ok());
    return reply.template as<Out>().get(field);
  }
  template <class In, class Out, class Field>
  Code release(Opcode opcode, Field field, std::uint32_t number) {
    Input<In> in(opcode);
    in->set(field, number);
    return host.execute<Out>(in).status();
  }
  FakeHost host;
};

TEST_F(ResourcesTest, UarsNeverLieInTheInitializationSegmentOrTheMsixTable) {
  std::set<std::uint32_t> uars;
  Input<s::alloc_uar_in> in(Opcode::ALLOC_UAR);
  for (;;) {
    const auto reply = host.execute<s::alloc_uar_out>(in);
    if (!reply.ok()) {
      EXPECT_EQ(reply.status(), Code::NO_RESOURCES);
      break;
    }
    EXPECT_TRUE(uars.insert(reply.as<s::alloc_uar_out>().get(s::alloc_uar_out::uar)).second);
  }
  EXPECT_GE(*uars.begin(), 3u);
  EXPECT_LT((*uars.rbegin() + 1) * kUarPageSize, kMsixOffset + 1);
  EXPECT_GT(uars.size(), 8000u);
}

TEST_F(ResourcesTest, FreedTwiceIsRefused) {
  const auto pd = host.allocate_pd();
  using In = s::dealloc_pd_in;
  EXPECT_EQ((release<In, s::dealloc_pd_out>(Opcode::DEALLOC_PD, In::pd, pd)), Code::OK);
  EXPECT_EQ((release<In, s::dealloc_pd_out>(Opcode::DEALLOC_PD, In::pd, pd)), Code::BAD_RESOURCE);
  using Uar = s::dealloc_uar_in;
  EXPECT_EQ((release<Uar, s::dealloc_uar_out>(Opcode::DEALLOC_UAR, Uar::uar, 0xFFFFFF)),
            Code::BAD_RESOURCE);
}

TEST_F(ResourcesTest, TransportAndXrcDomainsComeAndGo) {
  using Td = s::alloc_transport_domain_out;
  const auto td = allocate<s::alloc_transport_domain_in, Td>(Opcode::ALLOC_TRANSPORT_DOMAIN,
                                                             Td::transport_domain);
  EXPECT_TRUE(host.device.driver().resources().transport_domains().contains(TransportDomain(td)));
  using TdIn = s::dealloc_transport_domain_in;
  EXPECT_EQ((release<TdIn, s::dealloc_transport_domain_out>(Opcode::DEALLOC_TRANSPORT_DOMAIN,
                                                            TdIn::transport_domain, td)),
            Code::OK);
  using Xrcd = s::alloc_xrcd_out;
  const auto xrcd = allocate<s::alloc_xrcd_in, Xrcd>(Opcode::ALLOC_XRCD, Xrcd::xrcd);
  using XrcdIn = s::dealloc_xrcd_in;
  EXPECT_EQ((release<XrcdIn, s::dealloc_xrcd_out>(Opcode::DEALLOC_XRCD, XrcdIn::xrcd, xrcd)),
            Code::OK);
}

// A number in use cannot be freed: PRM Table 128, BAD_RES_STATE.
TEST_F(ResourcesTest, ANumberInUseIsNotFreed) {
  const auto dealloc_uar = [&] {
    using In = s::dealloc_uar_in;
    return release<In, s::dealloc_uar_out>(Opcode::DEALLOC_UAR, In::uar, host.uar);
  };
  const auto destroy_eq = [&](std::uint32_t eqn) {
    using In = s::destroy_eq_in;
    return release<In, s::destroy_eq_out>(Opcode::DESTROY_EQ, In::eq_number, eqn);
  };
  const auto eqn = host.create_eq(4, 0, 0);
  EXPECT_EQ(dealloc_uar(), Code::BAD_RES_STATE) << "the EQ's";
  const auto cqn = host.create_cq(4, eqn).cqn;
  EXPECT_EQ(destroy_eq(eqn), Code::BAD_RES_STATE) << "the CQ's";
  using In = s::destroy_cq_in;
  EXPECT_EQ((release<In, s::destroy_cq_out>(Opcode::DESTROY_CQ, In::cqn, cqn)), Code::OK);
  EXPECT_EQ(destroy_eq(eqn), Code::OK);
  EXPECT_EQ(dealloc_uar(), Code::OK);
}

TEST_F(ResourcesTest, TheProtectionDomainOfAMemoryKeyIsNotFreed) {
  const auto pd = host.allocate_pd();
  using Pd = s::dealloc_pd_in;
  const auto dealloc_pd = [&] {
    return release<Pd, s::dealloc_pd_out>(Opcode::DEALLOC_PD, Pd::pd, pd);
  };
  Input<s::create_mkey_in> in(Opcode::CREATE_MKEY);
  const auto context = (*in).sub(s::create_mkey_in::mkey_context);
  context.set(s::mkey_context::pd, pd);
  context.set(s::mkey_context::length64, 1);
  context.set(s::mkey_context::qpn, 0xFFFFFF);
  const auto reply = host.execute<s::create_mkey_out>(in);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(dealloc_pd(), Code::BAD_RES_STATE);
  using In = s::destroy_mkey_in;
  const auto index = reply.as<s::create_mkey_out>().get(s::create_mkey_out::mkey_index);
  EXPECT_EQ((release<In, s::destroy_mkey_out>(Opcode::DESTROY_MKEY, In::mkey_index, index)),
            Code::OK);
  EXPECT_EQ(dealloc_pd(), Code::OK);
}

TEST_F(ResourcesTest, QueryOfAQCounterClearsItWhenAsked) {
  using Out = s::alloc_q_counter_out;
  const auto id =
      allocate<s::alloc_q_counter_in, Out>(Opcode::ALLOC_Q_COUNTER, Out::counter_set_id);
  EXPECT_NE(id, 0u) << "0 means none";
  auto* counters = host.device.driver().resources().q_counter(CounterSetId(id));
  counters->out_of_buffer = 7;
  counters->local_ack_timeout_err = (1ull << 32) + 3;
  using In = s::query_q_counter_in;
  using Query = s::query_q_counter_out;
  Input<In> in(Opcode::QUERY_Q_COUNTER);
  in->set(In::counter_set_id, id);
  auto reply = host.execute<Query>(in);
  EXPECT_EQ(reply.as<Query>().get(Query::out_of_buffer), 7u);
  in->set(In::clear, 1);
  reply = host.execute<Query>(in);
  EXPECT_EQ(reply.as<Query>().get(Query::out_of_buffer), 7u);
  EXPECT_EQ(reply.as<Query>().get(Query::local_ack_timeout_err), 3u) << "32 bits, wraps around";
  reply = host.execute<Query>(in);
  EXPECT_EQ(reply.as<Query>().get(Query::out_of_buffer), 0u);
}

TEST_F(ResourcesTest, ANewSetOfQCountersIsZero) {
  using Out = s::alloc_q_counter_out;
  const auto alloc = [&] {
    return allocate<s::alloc_q_counter_in, Out>(Opcode::ALLOC_Q_COUNTER, Out::counter_set_id);
  };
  const auto id = alloc();
  auto& resources = host.device.driver().resources();
  resources.q_counter(CounterSetId(id))->out_of_buffer = 7;
  using In = s::dealloc_q_counter_in;
  EXPECT_EQ(
      (release<In, s::dealloc_q_counter_out>(Opcode::DEALLOC_Q_COUNTER, In::counter_set_id, id)),
      Code::OK);
  // A freed number is reused only after all others.
  auto again = alloc();
  for (unsigned others = 0; again != id && others < Limits{}.max_qp_cnt; ++others) again = alloc();
  ASSERT_EQ(again, id);
  EXPECT_EQ(resources.q_counter(CounterSetId(id))->out_of_buffer, 0u);
}

TEST_F(ResourcesTest, UnknownQCounterIsRefused) {
  using In = s::query_q_counter_in;
  Input<In> in(Opcode::QUERY_Q_COUNTER);
  in->set(In::counter_set_id, 9);
  EXPECT_EQ(host.execute<s::query_q_counter_out>(in).status(), Code::BAD_RESOURCE);
}

// The capabilities q_counter_other_vport and q_counter_aggregation are 0.
TEST_F(ResourcesTest, QCountersOfAnotherVportOrOfAllSetsAreRefusedAndNotCleared) {
  using Out = s::alloc_q_counter_out;
  const auto id =
      allocate<s::alloc_q_counter_in, Out>(Opcode::ALLOC_Q_COUNTER, Out::counter_set_id);
  auto& counters = *host.device.driver().resources().q_counter(CounterSetId(id));
  counters.out_of_buffer = 7;
  using In = s::query_q_counter_in;
  const auto status_with = [&](auto field) {
    Input<In> in(Opcode::QUERY_Q_COUNTER);
    in->set(In::counter_set_id, id);
    in->set(In::clear, 1);
    in->set(field, 1);
    return host.execute<s::query_q_counter_out>(in).status();
  };
  EXPECT_EQ(status_with(In::other_vport), Code::BAD_PARAM);
  EXPECT_EQ(status_with(In::vport_number), Code::BAD_PARAM);
  EXPECT_EQ(status_with(In::aggregate), Code::BAD_PARAM);
  EXPECT_EQ(counters.out_of_buffer, 7u);
}

TEST_F(ResourcesTest, AllQCountersCanBeInUse) {
  Input<s::alloc_q_counter_in> in(Opcode::ALLOC_Q_COUNTER);
  for (unsigned i = 0; i < Limits{}.max_qp_cnt; ++i) {
    EXPECT_TRUE(host.execute<s::alloc_q_counter_out>(in).ok());
  }
  EXPECT_EQ(host.execute<s::alloc_q_counter_out>(in).status(), Code::NO_RESOURCES);
}

}  // namespace
}  // namespace softhca::connectx
