// Commands and doorbells of CQs (PRM 7.13, 12.7).
#include <gtest/gtest.h>

#include "connectx/event/queue_host.h"
#include "connectx/fake_host.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

TEST_F(QueueTest, ArmingAsTwoDwordsIsTheSame) {
  make_cq();
  host.write32(host.uar * 4096 + 0x20, 0);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
}

// PRM 7.2: "HCA validates that the UAR page used to post the command matches the one specified in
// the contexts of that object."
TEST_F(QueueTest, ACqListensOnlyToItsOwnDoorbellPage) {
  const auto before = host.uar;
  host.uar = host.allocate_uar();
  const auto after = host.allocate_uar();
  make_cq();
  for (const auto other : {before, after}) {
    host.write64(other * 4096 + 0x20, arm_word(0) << 32 | cqn);
  }
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 0u);
}

// PRM 7.2.2.2: "Such a synchronization is not required for when ringing DoorBells on different UAR
// pages."
TEST_F(QueueTest, DoorbellsInTwoHalvesMayCrossThoseOfAnotherPage) {
  make_cq();
  const auto page = host.uar;
  const auto first = cqn;
  host.uar = host.allocate_uar();
  make_cq();
  host.write32(page * 4096 + 0x20, 0);
  host.write32(host.uar * 4096 + 0x20, 0);
  host.write32(page * 4096 + 0x24, first);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  cqn = first;
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 2u);
}

TEST_F(QueueTest, TheSecondHalfOfADoorbellRingsOnce) {
  make_cq();
  host.write32(host.uar * 4096 + 0x20, 0);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
}

TEST_F(QueueTest, HalvesOfDifferentDoorbellPagesDoNotMeet) {
  make_cq();
  const auto other = host.allocate_uar();
  host.write32(other * 4096 + 0x20, 0);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 0u);
}

// PRM 7.2.2.2: a doorbell in two halves must not be interrupted on its own page; on another page it
// may.
TEST_F(QueueTest, HalvesOfTwoDoorbellPagesThatAreWrittenInTurnBothCount) {
  const auto first = host.uar;
  make_cq();
  const auto first_cqn = cqn;
  host.uar = host.allocate_uar();
  make_cq();
  host.write32(first * 4096 + 0x20, 0);
  host.write32(host.uar * 4096 + 0x20, 0);
  host.write32(first * 4096 + 0x24, first_cqn);
  host.write32(host.uar * 4096 + 0x24, cqn);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  cqn = first_cqn;
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 2u);
}

TEST_F(QueueTest, OverrunFailsTheCqWithAnEvent) {
  const auto async = host.create_eq(4, 1ull << 0x04, 1);
  (void)async;
  const auto errors = host.last_buffer;
  make_cq(1);
  EXPECT_TRUE(complete());
  EXPECT_TRUE(complete());
  EXPECT_FALSE(complete());
  const util::View<s::eqe> eqe(std::span(host.at(errors), 64));
  EXPECT_EQ(eqe.get(s::eqe::event_type), 0x04u);
  using Data = s::event_data_cq_error;
  const util::View<Data> data(eqe.get(s::eqe::event_data));
  EXPECT_EQ(data.get(Data::cqn), cqn);
  EXPECT_EQ(data.get(Data::syndrome), 1u);
}

// PRM Table 76: oi "overrun ignore", cc "all CQEs are written to the first entry".
TEST_F(QueueTest, OverrunIsIgnoredWhereAsked) {
  make_cq(2, [](auto context) { context.set(s::cq_context::oi, 1); });
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(complete(false, std::byte(i)));
  EXPECT_EQ(host.at(cq)[1], std::byte{8}) << "the ninth is in the first of four entries";
  EXPECT_EQ(host.at(cq + 64)[1], std::byte{5});
}

TEST_F(QueueTest, ACollapsedCqHasOneEntry) {
  make_cq(2, [](auto context) {
    context.set(s::cq_context::oi, 1);
    context.set(s::cq_context::cc, 1);
  });
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(complete(false, std::byte(i)));
  EXPECT_EQ(host.at(cq)[1], std::byte{8});
  EXPECT_EQ(host.at(cq + 64)[1], std::byte{0}) << "nothing is written behind it";
}

TEST_F(QueueTest, ACqMayBeginInTheMiddleOfItsPage) {
  make_cq(2, [](auto context) { context.set(s::cq_context::page_offset, 10); });
  EXPECT_TRUE(complete());
  EXPECT_EQ(host.at(cq + 640)[0], std::byte{0xC0});
}

TEST_F(QueueTest, CqesOf128BytesStandInTheSecondHalf) {
  make_cq(2, {}, 128);
  EXPECT_TRUE(complete());
  EXPECT_TRUE(complete());
  EXPECT_EQ(host.at(cq + 64)[0], std::byte{0xC0});
  EXPECT_EQ(host.at(cq + 192)[0], std::byte{0xC0});
}

TEST_F(QueueTest, BadCqContextsAreRefused) {
  struct Case {
    const char* what;
    Code status;
    void (*spoil)(util::MutableView<s::cq_context>);
  };
  using C = s::cq_context;
  const Case cases[] = {
      {"size", Code::EXCEED_LIM, [](auto c) { c.set(C::log_cq_size, 23); }},
      {"UAR", Code::BAD_RESOURCE, [](auto c) { c.set(C::uar_page, 2); }},
      {"EQ", Code::BAD_RESOURCE, [](auto c) { c.set(C::c_eqn, 0x10000); }},
      {"CQE size", Code::BAD_PARAM, [](auto c) { c.set(C::cqe_sz, 3); }},
      {"compression", Code::OK, [](auto c) { c.set(C::cqe_compression_en, 1); }},
      {"compression of 128 bytes", Code::BAD_PARAM,
       [](auto c) {
         c.set(C::cqe_compression_en, 1);
         c.set(C::cqe_sz, 1);
       }},
      {"compression by stride", Code::BAD_PARAM,
       [](auto c) {
         c.set(C::cqe_compression_en, 1);
         c.set(C::mini_cqe_res_format, 2);
       }},
      {"compression of later devices", Code::BAD_PARAM,
       [](auto c) {
         c.set(C::cqe_compression_en, 1);
         c.set(C::cqe_compression_layout, 1);
       }},
      {"scqe break", Code::BAD_PARAM, [](auto c) { c.set(C::scqe_break_moderation_en, 1); }},
      {"pages", Code::BAD_INPUT_LEN, [](auto c) { c.set(C::log_cq_size, 7); }},
      {"page offset", Code::BAD_INPUT_LEN, [](auto c) { c.set(C::page_offset, 63); }},
      {"giant pages", Code::OK, [](auto c) { c.set(C::log_page_size, 31); }},
      // PRM 7.12.2: "CQ Doorbell Records are aligned on an 8B boundary."
      {"record at a dword", Code::BAD_PARAM, [](auto c) { c.set(C::dbr_addr, 0x1004); }},
      {"record at a qword", Code::OK, [](auto c) { c.set(C::dbr_addr, 0x1008); }},
  };
  for (const auto& c : cases) {
    Input<s::create_cq_in> in(Opcode::CREATE_CQ, 0, 8);
    const auto context = (*in).sub(s::create_cq_in::cq_context_entry);
    context.set(C::log_cq_size, 2);
    context.set(C::uar_page, host.uar);
    context.set(C::c_eqn, eqn);
    in.set_address(0, host.allocate(4096));
    c.spoil(context);
    EXPECT_EQ(host.execute<s::create_cq_out>(in).status(), c.status) << c.what;
  }
}

TEST_F(QueueTest, ModerationIsKeptAndShown) {
  make_cq();
  using In = s::modify_cq_in;
  Input<In> in(Opcode::MODIFY_CQ);
  in->set(In::cqn, cqn);
  in->set(In::modify_field_select, 0b11);
  const auto context = (*in).sub(In::cq_context_entry);
  context.set(s::cq_context::cq_period, 8);
  context.set(s::cq_context::cq_max_count, 32);
  EXPECT_TRUE(host.execute<s::modify_cq_out>(in).ok());
  Input<s::query_cq_in> query(Opcode::QUERY_CQ);
  query->set(s::query_cq_in::cqn, cqn);
  using Out = s::query_cq_out;
  const auto reply = host.execute<Out>(query, 8);
  ASSERT_TRUE(reply.ok());
  const auto now = reply.as<Out>().get(Out::cq_context_entry);
  EXPECT_EQ(now.get(s::cq_context::cq_period), 8u);
  EXPECT_EQ(now.get(s::cq_context::cq_max_count), 32u);
  EXPECT_EQ(now.get(s::cq_context::dbr_addr), record);
}

TEST_F(QueueTest, FieldsWithoutTheirCapabilityCannotBeModified) {
  make_cq();
  using In = s::modify_cq_in;
  Input<In> remap(Opcode::MODIFY_CQ);
  remap->set(In::cqn, cqn);
  remap->set(In::modify_field_select, 1u << 3);
  EXPECT_EQ(host.execute<s::modify_cq_out>(remap).status(), Code::BAD_PARAM);
}

TEST_F(QueueTest, ADestroyedCqIsUnknown) {
  make_cq();
  Input<s::destroy_cq_in> in(Opcode::DESTROY_CQ);
  in->set(s::destroy_cq_in::cqn, cqn);
  EXPECT_TRUE(host.execute<s::destroy_cq_out>(in).ok());
  EXPECT_EQ(host.execute<s::destroy_cq_out>(in).status(), Code::BAD_RESOURCE);
  arm_cq(0);  // has no effect
}

TEST_F(QueueTest, AnEqOutlivesItsCqs) {
  make_cq();
  Input<s::destroy_eq_in> in(Opcode::DESTROY_EQ);
  in->set(s::destroy_eq_in::eq_number, eqn);
  ASSERT_EQ(host.execute<s::destroy_eq_out>(in).status(), Code::BAD_RES_STATE);
  arm_cq(0);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  Input<s::destroy_cq_in> destroy(Opcode::DESTROY_CQ);
  destroy->set(s::destroy_cq_in::cqn, cqn);
  EXPECT_TRUE(host.execute<s::destroy_cq_out>(destroy).ok());
  EXPECT_TRUE(host.execute<s::destroy_eq_out>(in).ok());
}

// PRM Table 76, status: "0x9: CQ_OVERFLOW 0xA: CQ_WRITE_FAIL".
TEST_F(QueueTest, QueryCqDistinguishesAnOverrunFromAFailedWrite) {
  const auto status = [&] {
    Input<s::query_cq_in> query(Opcode::QUERY_CQ);
    query->set(s::query_cq_in::cqn, cqn);
    using Out = s::query_cq_out;
    const auto reply = host.execute<Out>(query, 8);
    return reply.as<Out>().get(Out::cq_context_entry).get(s::cq_context::status);
  };
  make_cq(1);
  EXPECT_EQ(status(), 0u);
  while (complete()) {
  }
  EXPECT_EQ(status(), 9u);
  make_cq(6);
  break_pages(cq, [&] { EXPECT_FALSE(complete()); });
  EXPECT_EQ(status(), 0xAu);
}

TEST_F(QueueTest, QueryCqShowsTheLastNotifiedAndTheLastSolicitedIndex) {
  make_cq();
  EXPECT_TRUE(complete());
  EXPECT_TRUE(complete(true));
  EXPECT_TRUE(complete());
  arm_cq(0);
  EXPECT_TRUE(complete());
  Input<s::query_cq_in> query(Opcode::QUERY_CQ);
  query->set(s::query_cq_in::cqn, cqn);
  using Out = s::query_cq_out;
  const auto reply = host.execute<Out>(query, 8);
  const auto context = reply.as<Out>().get(Out::cq_context_entry);
  EXPECT_EQ(context.get(s::cq_context::producer_counter), 4u);
  EXPECT_EQ(context.get(s::cq_context::last_notified_index), 3u);
  EXPECT_EQ(context.get(s::cq_context::last_solicit_index), 2u);
}

TEST_F(QueueTest, ACqWhoseMemoryIsGoneFails) {
  make_cq();
  host.unmap();
  EXPECT_FALSE(complete());
}

}  // namespace
}  // namespace softhca::connectx
