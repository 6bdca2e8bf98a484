// MODIFY_QP: the mailbox that each opcode takes, and the fields that it reads (JingZhao 3.2.6.1,
// A1-2).
#include <gtest/gtest.h>

#include <map>

#include "jingzhao/raw_host.h"
#include "jingzhao/spoiler.h"
#include "spec/infiniband/qp_states.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using driver::SendOpcode;
using spec::jingzhao::cq_context;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;

/// QP 5 with CQ 0, on a host that writes registers.
class JingzhaoModifyQp : public testing::Test {
 protected:
  static constexpr std::uint32_t kQpn = 5;
  JingzhaoModifyQp() {
    h.init();
    h.clear_mailbox();
    EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
    context.set(qp_context::local_qpn, kQpn);
  }
  hcr_status go(command_opcode opcode, qp_state state, std::uint8_t op_modifier = 0) {
    context.set(qp_context::state, static_cast<std::uint32_t>(state));
    h.put(context.bytes());
    return h.with_mailbox(opcode, kQpn, op_modifier);
  }
  void to_rts() {
    std::ranges::fill(context.bytes(), std::byte{0});
    context.set(qp_context::local_qpn, kQpn);
    ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
    context.set(qp_context::mtu, 3);
    context.set(qp_context::rnr_timer, 5);
    ASSERT_EQ(go(command_opcode::INIT2RTR_QPEE, qp_state::RTR), OK);
    ASSERT_EQ(go(command_opcode::RTR2RTS_QPEE, qp_state::RTS), OK);
  }
  std::uint32_t query(auto field) {
    EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_QP, kQpn), OK);
    return util::View<qp_context>(h.out.bytes).get(field);
  }
  qp_state state() { return qp_state(query(qp_context::state)); }

  RawHost h;
  util::Struct<qp_context> context;
};

// Table 3-2-39: op_modifier 0 is "with a mailbox", 3 "without", for any transition to RST.
TEST_F(JingzhaoModifyQp, ResetsWithAMailboxOrWithout) {
  for (const std::uint8_t modifier : {std::uint8_t{0}, std::uint8_t{3}}) {
    ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
    h.clear_mailbox();  // as the author's driver sends it
    EXPECT_EQ(h.with_mailbox(command_opcode::ERR2RST_QPEE, kQpn, modifier), OK);
    EXPECT_EQ(state(), qp_state::RST) << unsigned{modifier};
  }
}

TEST_F(JingzhaoModifyQp, RefusesToResetWithAMailboxThatSaysOtherwise) {
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  EXPECT_EQ(go(command_opcode::ERR2RST_QPEE, qp_state::RTS), BAD_PARAM) << "the state of its flags";
  EXPECT_EQ(h.command(command_opcode::ERR2RST_QPEE, {.in_modifier = kQpn}), BAD_PARAM)
      << "no mailbox";
  EXPECT_EQ(h.with_mailbox(command_opcode::ERR2RST_QPEE, kQpn, 1), BAD_PARAM) << "op_modifier";
  EXPECT_EQ(state(), qp_state::INIT);
}

// Table 3-2-40: the mailbox gives the QP and its target state.
TEST_F(JingzhaoModifyQp, GoesToErrOnlyAsItsMailboxSays) {
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  EXPECT_EQ(go(command_opcode::TO_ERR_QPEE, qp_state::RTR), BAD_PARAM) << "the state of its flags";
  context.set(qp_context::local_qpn, kQpn + 1);
  EXPECT_EQ(go(command_opcode::TO_ERR_QPEE, qp_state::ERR), BAD_PARAM) << "local_qpn";
  context.set(qp_context::local_qpn, 64);
  EXPECT_EQ(h.with_mailbox(command_opcode::TO_ERR_QPEE, 64), BAD_PARAM) << "beyond the table";
  EXPECT_EQ(state(), qp_state::INIT);
  context.set(qp_context::local_qpn, kQpn);
  EXPECT_EQ(go(command_opcode::TO_ERR_QPEE, qp_state::ERR), OK);
  EXPECT_EQ(state(), qp_state::ERR);
}

// Table A1-2 requires these attributes; InfiniBand has them as optional.
TEST_F(JingzhaoModifyQp, FromInitToInitTakesPkeyIndexPortAndQkeyWithoutTheirBits) {
  context.set(qp_context::type, static_cast<std::uint32_t>(spec::jingzhao::qp_type::UD));
  context.set(qp_context::qkey, 1);
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  context.set(qp_context::qkey, 2);
  context.set(qp_context::pkey_index, 1);
  context.set(qp_context::port, 1);
  ASSERT_EQ(go(command_opcode::INIT2INIT_QPEE, qp_state::INIT), OK);
  EXPECT_EQ(query(qp_context::qkey), 2u);
  EXPECT_EQ(query(qp_context::pkey_index), 1u);
  EXPECT_EQ(query(qp_context::port), 1u);
}

TEST_F(JingzhaoModifyQp, FromInitToInitTakesTheRightsOfAConnection) {
  context.set(qp_context::limits_valid, 1);
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  context.set(qp_context::remote_write, 1);
  context.set(qp_context::qkey, 7);
  ASSERT_EQ(go(command_opcode::INIT2INIT_QPEE, qp_state::INIT), OK);
  EXPECT_EQ(query(qp_context::remote_write), 1u);
  EXPECT_EQ(query(qp_context::qkey), 0u) << "of a UD QP";
}

TEST_F(JingzhaoModifyQp, ARunningQueuePairTakesWhatTheMaskNamesAndNothingElse) {
  using spec::infiniband::QpAttribute;
  using spec::infiniband::QpAttributeSet;
  to_rts();
  const auto change = [&](QpAttributeSet mask, std::uint32_t rnr_timer) {
    context.set(qp_context::opt_param_mask, mask.bits());
    context.set(qp_context::rnr_timer, rnr_timer);
    EXPECT_EQ(go(command_opcode::RTS2RTS_QPEE, qp_state::RTS), OK);
    return query(qp_context::rnr_timer);
  };
  EXPECT_EQ(change({}, 9), 5u);
  EXPECT_EQ(change({QpAttribute::kMinRnrTimer}, 9), 9u);
  EXPECT_EQ(change({QpAttribute::kRetryCount}, 3), 9u) << "the mask names another";
}

TEST_F(JingzhaoModifyQp, ADrainedQueuePairChangesAndRunsAgain) {
  using spec::infiniband::QpAttribute;
  using spec::infiniband::QpAttributeSet;
  for (const std::uint32_t notify : {0u, 1u << 31}) {
    to_rts();
    context.set(qp_context::state, static_cast<std::uint32_t>(qp_state::SQD));
    h.put(context.bytes());
    // Bit 31 of in_modifier requests SQ_DRAINED, for this command only.
    EXPECT_EQ(h.with_mailbox(command_opcode::RTS2SQD_QPEE, kQpn | notify), OK) << notify;
    EXPECT_EQ(state(), qp_state::SQD);
    h.put(context.bytes());
    EXPECT_EQ(h.with_mailbox(command_opcode::SQD2SQD_QPEE, kQpn | 1u << 31), BAD_PARAM);
    context.set(qp_context::limits_valid, 1);
    context.set(qp_context::retry_cnt, 3);
    context.set(qp_context::opt_param_mask, QpAttributeSet({QpAttribute::kRetryCount}).bits());
    EXPECT_EQ(go(command_opcode::SQD2SQD_QPEE, qp_state::SQD), OK);
    EXPECT_EQ(query(qp_context::retry_cnt), 3u);
    EXPECT_EQ(state(), qp_state::SQD);
    EXPECT_EQ(go(command_opcode::SQD2RTS_QPEE, qp_state::RTS), OK);
    EXPECT_EQ(state(), qp_state::RTS);
    EXPECT_EQ(go(command_opcode::SQD2RTS_QPEE, qp_state::RTS), BAD_PARAM) << "it is in RTS";
    h.clear_mailbox();
    ASSERT_EQ(h.with_mailbox(command_opcode::ERR2RST_QPEE, kQpn), OK);
  }
}

/// Fields of a QP context that QUERY_QP shows as MODIFY_QP took them.
struct Taken {
  std::uint32_t access = 0, pkey_index = 0, port = 0, address = 0;
  std::uint32_t timeout = 0, retries = 0, rnr_retry = 0, rnr_timer = 0;
  bool operator==(const Taken&) const = default;
};

// Table A1-3: the number of each bit is the document's, and SQD2SQD_QPEE has most of them as
// optional (table A1-2).
TEST_F(JingzhaoModifyQp, EachBitOfTheMaskTakesItsOwnFields) {
  const auto give = [&](std::uint32_t value) {
    context.set(qp_context::limits_valid, value);
    context.set(qp_context::remote_read, value);
    context.set(qp_context::pkey_index, value);
    context.set(qp_context::port, value);
    context.set(qp_context::dip, value);
    context.set(qp_context::ackto, value);
    context.set(qp_context::retry_cnt, value);
    context.set(qp_context::rnr_retry, value);
    context.set(qp_context::rnr_timer, value);
  };
  const auto taken = [&] {
    EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_QP, kQpn), OK);
    const util::View<qp_context> out(h.out.bytes);
    return Taken{.access = out.get(qp_context::remote_read),
                 .pkey_index = out.get(qp_context::pkey_index),
                 .port = out.get(qp_context::port),
                 .address = out.get(qp_context::dip),
                 .timeout = out.get(qp_context::ackto),
                 .retries = out.get(qp_context::retry_cnt),
                 .rnr_retry = out.get(qp_context::rnr_retry),
                 .rnr_timer = out.get(qp_context::rnr_timer)};
  };
  // The other bits take nothing in SQD, or nothing that the context has a field for.
  const std::map<unsigned, Taken> rows{
      {3, {.access = 1}},  {4, {.pkey_index = 1}}, {5, {.port = 1}},       {7, {.address = 1}},
      {9, {.timeout = 1}}, {10, {.retries = 1}},   {11, {.rnr_retry = 1}}, {15, {.rnr_timer = 1}},
  };
  for (unsigned bit = 0; bit != spec::infiniband::kQpAttributes; ++bit) {
    const auto row = rows.find(bit);
    to_rts();
    ASSERT_EQ(go(command_opcode::RTS2SQD_QPEE, qp_state::SQD), OK);
    // All fields are 0 first, but the RNR timer, which to_rts() needs.
    context.set(qp_context::rnr_timer, 0);
    context.set(qp_context::opt_param_mask, 1u << 15);
    ASSERT_EQ(go(command_opcode::SQD2SQD_QPEE, qp_state::SQD), OK);
    give(1);
    context.set(qp_context::opt_param_mask, 1u << bit);
    EXPECT_EQ(go(command_opcode::SQD2SQD_QPEE, qp_state::SQD), OK) << bit;
    EXPECT_EQ(taken(), row == rows.end() ? Taken{} : row->second) << bit;
    h.clear_mailbox();
    ASSERT_EQ(h.with_mailbox(command_opcode::ERR2RST_QPEE, kQpn), OK);
  }
}

// Table A1-2: what a transition requires of RC is taken without a bit of the mask.
TEST_F(JingzhaoModifyQp, TakesWhatATransitionRequiresWithoutItsBit) {
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  context.set(qp_context::mtu, 3);
  context.set(qp_context::dip, 0x0A000001);
  context.set(qp_context::remote_qpn, 77);
  context.set(qp_context::epsn, 0x123456);
  context.set(qp_context::rnr_timer, 9);
  context.set(qp_context::ackto, 0x70);
  ASSERT_EQ(go(command_opcode::INIT2RTR_QPEE, qp_state::RTR), OK);
  EXPECT_EQ(query(qp_context::mtu), 3u);
  EXPECT_EQ(query(qp_context::dip), 0x0A000001u);
  EXPECT_EQ(query(qp_context::remote_qpn), 77u);
  EXPECT_EQ(query(qp_context::epsn), 0x123456u);
  EXPECT_EQ(query(qp_context::rnr_timer), 9u);
  EXPECT_EQ(query(qp_context::ackto), 0u) << "belongs to the next transition";
  context.set(qp_context::limits_valid, 1);
  context.set(qp_context::retry_cnt, 5);
  context.set(qp_context::rnr_retry, 6);
  context.set(qp_context::next_send_psn, 0x654321);
  ASSERT_EQ(go(command_opcode::RTR2RTS_QPEE, qp_state::RTS), OK);
  EXPECT_EQ(query(qp_context::ackto), 0x70u);
  EXPECT_EQ(query(qp_context::retry_cnt), 5u);
  EXPECT_EQ(query(qp_context::rnr_retry), 6u);
  EXPECT_EQ(query(qp_context::next_send_psn), 0x654321u);
}

// Tables A1-2 and A1-3: the Q_Key is an attribute of datagrams.
TEST_F(JingzhaoModifyQp, ARunningDatagramQueuePairTakesItsQkeyByBit6) {
  context.set(qp_context::type, static_cast<std::uint32_t>(spec::jingzhao::qp_type::UD));
  ASSERT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK);
  ASSERT_EQ(go(command_opcode::INIT2RTR_QPEE, qp_state::RTR), OK);
  ASSERT_EQ(go(command_opcode::RTR2RTS_QPEE, qp_state::RTS), OK);
  context.set(qp_context::qkey, 7);
  ASSERT_EQ(go(command_opcode::RTS2RTS_QPEE, qp_state::RTS), OK);
  EXPECT_EQ(query(qp_context::qkey), 0u);
  context.set(qp_context::opt_param_mask, 1u << 6);
  ASSERT_EQ(go(command_opcode::RTS2RTS_QPEE, qp_state::RTS), OK);
  EXPECT_EQ(query(qp_context::qkey), 7u);
}

// 3.2.1.1: max_qp_sz counts WQEs of any size.
TEST_F(JingzhaoModifyQp, AQueueHasNoMoreWqesThanMaxQpSz) {
  const auto make = [&](auto length, auto log_stride, std::uint32_t log, std::uint32_t bytes) {
    context.set(length, bytes);
    context.set(log_stride, log);
    const auto status = go(command_opcode::RST2INIT_QPEE, qp_state::INIT);
    h.clear_mailbox();
    EXPECT_EQ(h.with_mailbox(command_opcode::ERR2RST_QPEE, kQpn), OK);
    context.set(length, 0);
    return status;
  };
  for (const std::uint32_t log : {4u, 7u, 9u}) {
    const auto bytes = 1u << (limits::kLogQpSize + log);
    using C = qp_context;
    EXPECT_EQ(make(C::rcv_wqe_len, C::rq_entry_sz_log, log, bytes), OK) << log;
    EXPECT_EQ(make(C::rcv_wqe_len, C::rq_entry_sz_log, log, bytes + 16), BAD_PARAM) << log;
    EXPECT_EQ(make(C::snd_wqe_len, C::sq_entry_sz_log, log, bytes), OK) << log;
    EXPECT_EQ(make(C::snd_wqe_len, C::sq_entry_sz_log, log, bytes + 16), BAD_PARAM) << log;
  }
}

// Table 3-2-41: MTU and largest message share one field, mtu_msgmax.
TEST(JingzhaoPathMtu, ComesWithTheLargestMessage) {
  World world({.make_host = Spoiler::make()});
  for (auto* node : {&world.a(), &world.b()}) {
    Spoiler::of(*node).spoil = [](command_opcode op, std::span<std::byte> mailbox) {
      if (op != command_opcode::RST2INIT_QPEE) return;
      const util::MutableView<qp_context> context(mailbox.first(qp_context::kSize));
      context.set(qp_context::mtu, 0);
      context.set(qp_context::msgmax, 0);
    };
  }
  world.open();
  Side a(world.a()), b(world.b());
  connect(a, b);
  b.receive(2, 0x1000, 100);
  const auto piece = a.piece(0, 100);
  ASSERT_EQ(a.qp->post_send({.id = 1, .opcode = SendOpcode::kSend, .pieces = {&piece, 1}}),
            PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 1, CompletionOpcode::kSend);
}

// IBTA 10.3.1, A1-1: posting a send before RTS is an immediate error. The device would drop its
// doorbell, and its slot would never become free.
TEST(JingzhaoPostSend, IsRefusedBeforeRts) {
  World world;
  world.open();
  Side a(world.a()), b(world.b());
  const auto piece = a.piece(0, 8);
  const auto post = [&](std::uint64_t id) {
    return a.qp->post_send({.id = id,
                            .opcode = SendOpcode::kRdmaWrite,
                            .pieces = {&piece, 1},
                            .remote_address = b.address(),
                            .rkey = b.key->key()});
  };
  must(b.qp->connect(b.node.address, a.as_remote(kPsnA), {.psn = kPsnB}));
  EXPECT_EQ(post(1), PostStatus::kWrongState);
  must(a.qp->to_init(a.node.address, {}));
  EXPECT_EQ(post(2), PostStatus::kWrongState);
  must(a.qp->to_rtr(b.as_remote(kPsnB), {}));
  EXPECT_EQ(post(3), PostStatus::kWrongState);
  must(a.qp->to_rts({.psn = kPsnA}));
  EXPECT_EQ(post(4), PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 4, CompletionOpcode::kRdmaWrite);
  EXPECT_EQ(a.send_cq->strays(), 0u);
  must(a.qp->to_reset());
  EXPECT_EQ(post(5), PostStatus::kWrongState);
  must(a.qp->to_init(a.node.address, {}));
  must(a.qp->to_error());
  EXPECT_EQ(post(6), PostStatus::kOk) << "it is flushed";
  expect_error(wait(world, *a.send_cq), 6, WorkStatus::kFlushed);
}

}  // namespace
}  // namespace softhca::jingzhao::test
