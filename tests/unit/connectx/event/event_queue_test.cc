// Commands and doorbells of EQs (PRM 7.12, 12.6).
#include "connectx/event/event_queue.h"

#include <gtest/gtest.h>

#include "connectx/event/queue_host.h"
#include "connectx/fake_host.h"
#include "spec/connectx/eq.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

TEST_F(QueueTest, AnEventGoesToTheEqThatItsTypeIsMappedTo) {
  const auto other = host.create_eq(4, 1ull << 0x09, 5);
  EXPECT_EQ(host.device.driver().event_queues().mapped(s::event_type::PORT_STATE_CHANGE),
            Eqn(other));
  const auto newest = host.create_eq(4, 1ull << 0x09, 5);
  EXPECT_EQ(host.device.driver().event_queues().mapped(s::event_type::PORT_STATE_CHANGE),
            Eqn(newest));
}

TEST_F(QueueTest, EventTypesAbove63AreInTheLaterWords) {
  Input<s::create_eq_in> in(Opcode::CREATE_EQ, 0, 8);
  const auto context = (*in).sub(s::create_eq_in::eq_context_entry);
  context.set(s::eq_context::log_eq_size, 4);
  context.set(s::eq_context::uar_page, host.uar);
  util::store_be64((*in).sub(s::create_eq_in::event_bitmask).data() + 8, 1ull << 6);
  in.set_address(0, host.allocate(4096));
  const auto reply = host.execute<s::create_eq_out>(in);
  ASSERT_TRUE(reply.ok());
  const auto number = reply.as<s::create_eq_out>().get(s::create_eq_out::eq_number);
  EXPECT_EQ(host.device.driver().event_queues().mapped(static_cast<s::event_type>(70)),
            Eqn(number));
}

TEST_F(QueueTest, AnUnarmedEqRaisesNoInterruptUntilItIsArmed) {
  make_cq();
  arm_cq(0);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  EXPECT_EQ(host.interrupts(2), 0u);
  arm_eq(0);
  EXPECT_EQ(host.interrupts(2), 1u);
}

TEST_F(QueueTest, OneArmingIsOneInterrupt) {
  make_cq();
  arm_eq(0);
  for (int i = 0; i < 3; ++i) {
    arm_cq(static_cast<std::uint32_t>(i));
    EXPECT_TRUE(complete());
  }
  EXPECT_EQ(events(), 3u);
  EXPECT_EQ(host.interrupts(2), 1u);
}

TEST_F(QueueTest, UpdateWithoutArmingRaisesNothing) {
  make_cq();
  arm_cq(0);
  EXPECT_TRUE(complete());
  eq_doorbell(0x48, 0, host.uar);
  EXPECT_EQ(host.interrupts(2), 0u);
}

TEST_F(QueueTest, AnEqListensOnlyToItsOwnDoorbellPage) {
  make_cq();
  arm_cq(0);
  EXPECT_TRUE(complete());
  eq_doorbell(0x40, 0, host.allocate_uar());
  EXPECT_EQ(host.interrupts(2), 0u);
}

TEST_F(QueueTest, GeneratedEventsAreWrittenAsTheyAre) {
  Input<s::gen_eqe_in> in(Opcode::GEN_EQE);
  in->set(s::gen_eqe_in::eq_number, eqn);
  const auto eqe = util::MutableView<s::eqe>((*in).sub(s::gen_eqe_in::eqe));
  eqe.set(s::eqe::event_type, 0x55);
  eqe.set(s::eqe::event_sub_type, 0x66);
  eqe.sub(s::eqe::event_data)[3] = std::byte{0x77};
  EXPECT_TRUE(host.execute<s::gen_eqe_out>(in).ok());
  const util::View<s::eqe> written(std::span(host.at(eq), 64));
  EXPECT_EQ(written.get(s::eqe::event_type), 0x55u);
  EXPECT_EQ(written.get(s::eqe::event_sub_type), 0x66u);
  EXPECT_EQ(written.get(s::eqe::event_data)[3], std::byte{0x77});
}

// PRM 7.13.5: several EQs may share a vector.
TEST_F(QueueTest, EqsThatShareAVectorRaiseItEachForItself) {
  const auto other = host.create_eq(4, 0, 2);
  const auto generate = [&](std::uint32_t number) {
    Input<s::gen_eqe_in> in(Opcode::GEN_EQE);
    in->set(s::gen_eqe_in::eq_number, number);
    EXPECT_TRUE(host.execute<s::gen_eqe_out>(in).ok());
  };
  arm_eq(0);
  host.write32(host.uar * 4096 + 0x40, other << 24);
  generate(eqn);
  EXPECT_EQ(host.interrupts(2), 1u);
  generate(other);
  EXPECT_EQ(host.interrupts(2), 2u);
  generate(other);
  EXPECT_EQ(host.interrupts(2), 2u) << "it is not armed again";
  host.write32(host.uar * 4096 + 0x40, other << 24 | 2);
  generate(eqn);
  EXPECT_EQ(host.interrupts(2), 2u) << "that the other is armed counts for nothing";
  generate(other);
  EXPECT_EQ(host.interrupts(2), 3u);
}

TEST_F(QueueTest, AFullEqLosesEventsAndNothingElse) {
  Input<s::gen_eqe_in> in(Opcode::GEN_EQE);
  in->set(s::gen_eqe_in::eq_number, eqn);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(host.execute<s::gen_eqe_out>(in).ok());
  EXPECT_EQ(host.execute<s::gen_eqe_out>(in).status(), Code::NO_RESOURCES);
  arm_eq(16);
  EXPECT_TRUE(host.execute<s::gen_eqe_out>(in).ok());
}

TEST_F(QueueTest, QueryEqShowsTheContext) {
  Input<s::query_eq_in> in(Opcode::QUERY_EQ);
  in->set(s::query_eq_in::eq_number, eqn);
  using Out = s::query_eq_out;
  const auto reply = host.execute<Out>(in, 8);
  ASSERT_TRUE(reply.ok());
  const auto context = reply.as<Out>().get(Out::eq_context_entry);
  EXPECT_EQ(context.get(s::eq_context::log_eq_size), 4u);
  EXPECT_EQ(context.get(s::eq_context::uar_page), host.uar);
  EXPECT_EQ(context.get(s::eq_context::intr), 2u);
  EXPECT_EQ(util::load_be64(reply.out.data() + Out::pas_offset), eq);
}

TEST_F(QueueTest, BadEqContextsAreRefused) {
  struct Case {
    const char* what;
    Code status;
    void (*spoil)(util::MutableView<s::eq_context>);
  };
  using C = s::eq_context;
  const Case cases[] = {
      {"size", Code::EXCEED_LIM, [](auto c) { c.set(C::log_eq_size, 23); }},
      {"UAR", Code::BAD_RESOURCE, [](auto c) { c.set(C::uar_page, 0); }},
      {"vector", Code::BAD_INDEX, [](auto c) { c.set(C::intr, 32); }},
      {"page offset", Code::BAD_PARAM, [](auto c) { c.set(C::page_offset, 1); }},
      {"collapsed", Code::BAD_PARAM, [](auto c) { c.set(C::ec, 1); }},
      {"pages", Code::BAD_INPUT_LEN, [](auto c) { c.set(C::log_eq_size, 7); }},
  };
  for (const auto& c : cases) {
    Input<s::create_eq_in> in(Opcode::CREATE_EQ, 0, 8);
    const auto context = (*in).sub(s::create_eq_in::eq_context_entry);
    context.set(C::log_eq_size, 4);
    context.set(C::uar_page, host.uar);
    in.set_address(0, host.allocate(4096));
    c.spoil(context);
    EXPECT_EQ(host.execute<s::create_eq_out>(in).status(), c.status) << c.what;
  }
}

TEST_F(QueueTest, UnknownEqsAreRefused) {
  Input<s::destroy_eq_in> destroy(Opcode::DESTROY_EQ);
  destroy->set(s::destroy_eq_in::eq_number, 99);
  EXPECT_EQ(host.execute<s::destroy_eq_out>(destroy).status(), Code::BAD_RESOURCE);
  Input<s::query_eq_in> query(Opcode::QUERY_EQ);
  query->set(s::query_eq_in::eq_number, 99);
  EXPECT_EQ(host.execute<s::query_eq_out>(query).status(), Code::BAD_RESOURCE);
}

TEST_F(QueueTest, AllEqsCanBeInUse) {
  for (unsigned i = 1; i < Limits::count(Limits{}.log_max_eq); ++i) (void)host.create_eq(4, 0, 0);
  Input<s::create_eq_in> in(Opcode::CREATE_EQ, 0, 8);
  const auto context = (*in).sub(s::create_eq_in::eq_context_entry);
  context.set(s::eq_context::uar_page, host.uar);
  in.set_address(0, host.allocate(4096));
  EXPECT_EQ(host.execute<s::create_eq_out>(in).status(), Code::NO_RESOURCES);
}

// PRM Table 94, status: "0xA: EQ_WRITE_FAILURE"; Table 8, health_syndrome: "0xD: EQ_IN_ERR".
TEST_F(QueueTest, AnEqThatCannotBeWrittenIsInError) {
  make_cq();
  arm_cq(0);
  break_pages(eq, [&] { EXPECT_TRUE(complete()) << "the CQ itself is well"; });
  Input<s::query_eq_in> in(Opcode::QUERY_EQ);
  in->set(s::query_eq_in::eq_number, eqn);
  using Out = s::query_eq_out;
  const auto reply = host.execute<Out>(in, 8);
  EXPECT_EQ(reply.as<Out>().get(Out::eq_context_entry).get(s::eq_context::status), 0xAu);
  EXPECT_EQ(health(), 0xDu);
  arm_eq(0);
  EXPECT_EQ(host.interrupts(2), 0u);
}

// PRM Table 8, health_syndrome: "0xC: ASYNCHRONOUS_EQ_BUF_OVERRUN".
TEST_F(QueueTest, AnAsynchronousEventThatFindsItsEqFullIsAHealthSyndrome) {
  const auto async = host.create_eq(0, 1ull << 0x04, 1);
  EXPECT_EQ(health(), 0u);
  for (unsigned i = 0; i < 2; ++i) {
    make_cq(0);
    while (complete()) {
    }
  }
  EXPECT_EQ(health(), 0xCu);
  Input<s::query_eq_in> in(Opcode::QUERY_EQ);
  in->set(s::query_eq_in::eq_number, async);
  using Out = s::query_eq_out;
  const auto reply = host.execute<Out>(in, 8);
  EXPECT_EQ(reply.as<Out>().get(Out::eq_context_entry).get(s::eq_context::status), 0u);
  // A driver that starts again finds a healthy device.
  host.start_queue();
  host.run();
  EXPECT_EQ(health(), 0u);
}

TEST_F(QueueTest, AnFlrMakesTheDeviceHealthyAgain) {
  host.device.health().report(s::health_syndrome::EQ_IN_ERR);
  EXPECT_EQ(health(), 0xDu);
  host.device.reset();
  EXPECT_EQ(health(), 0u);
}

}  // namespace
}  // namespace softhca::connectx
