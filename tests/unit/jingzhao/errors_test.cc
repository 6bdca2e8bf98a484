// Faults, and the syndrome, status or event that reports each (JingZhao 3.3.1, tables 3-1-5 and
// 3-3-3).
#include "jingzhao/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using spec::jingzhao::command_opcode;
using spec::jingzhao::event_type;
using spec::jingzhao::icm_group;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;

TEST_F(JingzhaoErrors, LocalLengthWhenTheMessageIsLongerThanMsgmax) {
  Side::Options options;
  options.log_message_max = 10;
  make(options);
  const auto piece = a->piece(0, 1025);
  EXPECT_EQ(outcome(request(SendOpcode::kRdmaWrite, piece)), WorkStatus::kLocalLength);
}

TEST_F(JingzhaoErrors, RemoteInvalidWhenThePeerReadsOrWritesMoreThanMsgmax) {
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    Side::Options options;
    a.emplace(world.a(), options);
    options.log_message_max = 12;
    b.emplace(world.b(), options);
    connect(*a, *b);
    EXPECT_EQ(outcome(request(opcode, a->piece(0, 4096))), WorkStatus::kSuccess);
    EXPECT_EQ(outcome(request(opcode, a->piece(0, 4097))), WorkStatus::kRemoteInvalidRequest);
  }
}

TEST_F(JingzhaoErrors, LocalLengthWhenTheReceiveIsShorterThanTheMessage) {
  make();
  b->receive(3, 0, 50);
  const auto piece = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kRemoteInvalidRequest);
  expect_error(wait(world, *b->receive_cq), 3, WorkStatus::kLocalLength);
}

TEST_F(JingzhaoErrors, LocalProtectionWhenTheLkeyIsUnknown) {
  make();
  auto piece = a->piece(0, 100);
  piece.lkey ^= 0x80000000;
  EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kLocalProtection);
}

TEST_F(JingzhaoErrors, LocalProtectionWhenTheRangeIsLeft) {
  make();
  const auto piece = a->piece(a->memory.size() - 50, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kLocalProtection);
}

TEST_F(JingzhaoErrors, RemoteAccessWhenTheRkeyGrantsNoWrite) {
  Side::Options options;
  options.access.remote_write = false;
  make(options);
  const auto piece = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kRdmaWrite, piece)), WorkStatus::kRemoteAccess);
}

TEST_F(JingzhaoErrors, RemoteInvalidRequestWhenTheQueuePairGrantsNoRead) {
  make({}, {}, {.read = false});
  const auto piece = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kRdmaRead, piece)), WorkStatus::kRemoteInvalidRequest);
}

TEST_F(JingzhaoErrors, RetryExceededWithoutAnAnswer) {
  make({}, impatient());
  must(b->qp->to_reset());
  const auto piece = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kTransportRetryExceeded);
}

TEST_F(JingzhaoErrors, RnrRetryExceededWhenNoReceiveComes) {
  make({}, {.rnr_retry = 2});
  const auto piece = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kRnrRetryExceeded);
}

// The order of vfio_user::ServeLoop after a sleep: the time, the frames that have ended it, run().
TEST_F(JingzhaoErrors, AnRnrWaitBeginsWhenTheNakArrives) {
  make();
  world.advance(std::chrono::milliseconds(1));
  auto& sender = *world.a().device;
  auto& network = world.network();
  const auto piece = a->piece(0, 100);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kSend, piece)), PostStatus::kOk);
  sender.run(world.now());
  network.deliver(1000);
  world.b().device->run(world.now());
  ASSERT_TRUE(network.has_work()) << "the NAK";
  const auto arrival = world.now() + std::chrono::milliseconds(10);
  sender.note_time(arrival);
  network.deliver(1000);
  sender.run(arrival);
  EXPECT_FALSE(network.has_work()) << "0.64 ms are not over";
  sender.run(arrival + std::chrono::microseconds(640));
  EXPECT_TRUE(network.has_work());
}

TEST_F(JingzhaoErrors, FramesForADeviceThatOwesTooMuchAreDropped) {
  make();
  const auto piece = a->piece(0, 10);
  const auto post = [&] {
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
    world.progress();
  };
  const auto dropped = [&] {
    const auto tree = inspect(*world.b().device);
    return std::stoull(tree.substr(tree.find_first_of("0123456789", tree.find("discarded"))));
  };
  world.b().device->charge(10'000'000);
  post();
  EXPECT_EQ(dropped(), 0u) << "it loads the region, for which the sender has not paid";
  post();
  EXPECT_EQ(dropped(), 1u);
  const auto done = wait(world, *a->send_cq, 2);
  ASSERT_EQ(done.size(), 2u);
  for (const auto& one : done) EXPECT_EQ(one.status, WorkStatus::kSuccess);
  EXPECT_EQ(dropped(), 1u) << "all is paid when the request comes again";
}

TEST_F(JingzhaoErrors, OutstandingRequestsAreFlushedInOrderBy2Err) {
  make({}, {.rnr_retry = 7});
  const auto piece = a->piece(0, 100);
  const auto send = [&](std::uint64_t id) {
    auto one = request(SendOpcode::kSend, piece);
    one.id = id;
    ASSERT_EQ(a->qp->post_send(one), PostStatus::kOk);
  };
  // The receiver has posted nothing: the first send waits for a receive, the others wait for the
  // first.
  for (std::uint64_t i = 0; i != 4; ++i) send(i);
  world.advance(std::chrono::milliseconds(1));
  must(a->qp->to_error());
  send(4);
  const auto done = wait(world, *a->send_cq, 5);
  ASSERT_EQ(done.size(), 5u);
  for (std::uint64_t i = 0; i != 5; ++i) {
    EXPECT_EQ(done[i].id, i);
    EXPECT_EQ(done[i].status, WorkStatus::kFlushed);
  }
  b->receive(1, 0, 100);
  b->receive(2, 0, 100);
  must(b->qp->to_error());
  const auto received = wait(world, *b->receive_cq, 2);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].id, 1u);
  EXPECT_EQ(received[1].id, 2u);
  b->receive(3, 0, 100);
  expect_error(wait(world, *b->receive_cq), 3, WorkStatus::kFlushed);
}

// IBTA 10.3.1: a send error of a UD QP does not affect its receive queue.
TEST_F(JingzhaoErrors, AnErrorOfADatagramLeadsToSqeAndBack) {
  const Side::Options options{.type = spec::jingzhao::qp_type::UD};
  a.emplace(world.a(), options);
  b.emplace(world.b(), options);
  must(a->qp->listen(world.a().address, kQkey));
  must(b->qp->listen(world.b().address, kQkey));
  auto piece = a->piece(0, 10);
  const jz::Datagram to{.to = world.b().address, .qpn = b->qp->qpn(), .qkey = kQkey};
  const auto send = [&](std::uint64_t id) {
    ASSERT_EQ(a->qp->post_send({.id = id, .opcode = SendOpcode::kSend, .pieces = {&piece, 1}}, to),
              PostStatus::kOk);
  };
  piece.lkey ^= 0x10000;
  send(1);
  expect_error(wait(world, *a->send_cq), 1, WorkStatus::kLocalProtection);
  EXPECT_EQ(must(a->qp->query_state()), qp_state::SQE);
  piece.lkey ^= 0x10000;
  send(2);
  expect_error(wait(world, *a->send_cq), 2, WorkStatus::kFlushed);
  ASSERT_TRUE(a->qp->from_send_error());
  b->receive(4, 0x1000, 100);
  send(3);
  expect_success(wait(world, *a->send_cq), 3, CompletionOpcode::kSend);
  expect_success(wait(world, *b->receive_cq), 4, CompletionOpcode::kReceive);
}

TEST_F(JingzhaoErrors, AnEventGoesToTheEqThatItsTypeIsMappedTo) {
  const auto map = [&](std::uint32_t modifier) {
    must(world.b().hca->run(
        {.op = command_opcode::MAP_EQ,
         .in_modifier = modifier,
         .in_param = std::uint64_t{1} << static_cast<unsigned>(event_type::WQ_INVAL_REQ_ERROR)}));
  };
  const auto provoke = [&] {
    make();
    const auto piece = a->piece(0, 8);
    auto unaligned = request(SendOpcode::kFetchAdd, piece);
    unaligned.remote_address += 4;
    EXPECT_EQ(outcome(unaligned), WorkStatus::kRemoteInvalidRequest);
  };
  const auto has_event = [&](jz::EventQueue& queue) {
    while (const auto found = queue.poll()) {
      if (found->type != event_type::WQ_INVAL_REQ_ERROR) continue;
      EXPECT_EQ(found->number, b->qp->qpn());
      return true;
    }
    return false;
  };
  auto& hca = *world.b().hca;
  provoke();
  EXPECT_TRUE(has_event(hca.events()));
  map(1);
  provoke();
  EXPECT_FALSE(has_event(hca.events()));
  EXPECT_TRUE(has_event(hca.completion_events()));
  map(1u << 31 | 1);  // unmap
  provoke();
  EXPECT_FALSE(has_event(hca.events()) || has_event(hca.completion_events()));
}

TEST_F(JingzhaoErrors, UnmappingTheIcmOfAQueuePairInUseSucceedsAndEndsIt) {
  make();
  // The QPC table is the first: 1,024 contexts of 256 bytes.
  must(world.a().hca->run({.op = command_opcode::UNMAP_ICM,
                           .in_modifier = 64,
                           .op_modifier = static_cast<std::uint8_t>(icm_group::QUEUE_CONTEXTS),
                           .in_param = 0}));
  const auto catastrophic = event(world.a());
  ASSERT_TRUE(catastrophic);
  EXPECT_EQ(catastrophic->type, event_type::WQ_CATAS_ERROR);
  EXPECT_EQ(catastrophic->number, a->qp->qpn());
  const auto piece = a->piece(0, 10);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
  world.advance(std::chrono::milliseconds(10));
  EXPECT_FALSE(a->qp->query_state());
}

TEST_F(JingzhaoErrors, UnmappingTheMemoryTablesLeavesNoKeyToBeUsed) {
  make({}, impatient());
  must(world.b().hca->run({.op = command_opcode::UNMAP_ICM,
                           .in_modifier = 1024,
                           .op_modifier = static_cast<std::uint8_t>(icm_group::MEMORY_TABLES),
                           .in_param = (256 + 128 + 4) << 10}));
  const auto piece = a->piece(0, 10);
  EXPECT_EQ(outcome(request(SendOpcode::kRdmaWrite, piece)), WorkStatus::kRemoteAccess);
}

TEST_F(JingzhaoErrors, ATransitionThatTheTableDoesNotHaveChangesNothing) {
  a.emplace(world.a());
  util::Struct<qp_context> context;
  context.set(qp_context::local_qpn, a->qp->qpn());
  context.set(qp_context::state, static_cast<std::uint32_t>(qp_state::RTR));
  const auto refused = world.a().hca->run(
      {.op = command_opcode::INIT2RTR_QPEE, .in_modifier = a->qp->qpn(), .in = context.bytes()});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("BAD_PARAM"));
  EXPECT_EQ(must(a->qp->query_state()), qp_state::RST);
  EXPECT_FALSE(world.a().hca->run(
      {.op = command_opcode::TO_ERR_QPEE, .in_modifier = a->qp->qpn(), .in = context.bytes()}))
      << "RST to ERR is not in table A1-2";
}

TEST_F(JingzhaoErrors, ADrainedQueueKeepsWhatIsPostedUntilItIsBackInRts) {
  make();
  must(a->qp->to_drained());
  const auto drained = event(world.a());
  ASSERT_TRUE(drained);
  EXPECT_EQ(drained->type, event_type::SQ_DRAINED);
  const auto piece = a->piece(0, 10);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
  EXPECT_TRUE(wait(world, *a->send_cq).empty());
  must(a->qp->from_drained());
  expect_success(wait(world, *a->send_cq), 7, CompletionOpcode::kRdmaWrite);
}

// IBTA 10.3.1.6
TEST_F(JingzhaoErrors, AQueuePairThatStillDrainsKeepsItsAttributes) {
  make();
  const auto piece = a->piece(0, 10);
  // Without a posted receive the peer is never ready.
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kSend, piece)), PostStatus::kOk);
  world.advance(std::chrono::milliseconds(1));
  must(a->qp->to_drained());
  const auto refused = a->qp->stay(qp_state::SQD);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("BAD_PARAM"));
  b->receive(3, 0, 100);
  expect_success(wait(world, *a->send_cq), 7, CompletionOpcode::kSend);
  must(a->qp->stay(qp_state::SQD));
  must(a->qp->from_drained());
}

TEST_F(JingzhaoErrors, AQueuePairThatWasResetIsUsedAgain) {
  make();
  for (unsigned i = 0; i != 3; ++i) {
    must(a->qp->to_reset());
    must(b->qp->to_reset());
    EXPECT_EQ(must(a->qp->query_state()), qp_state::RST);
    connect(*a, *b);
    b->receive(3, 0x1000, 100);
    const auto piece = a->piece(0, 100);
    EXPECT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kSuccess);
    expect_success(wait(world, *b->receive_cq), 3, CompletionOpcode::kReceive);
  }
}

TEST_F(JingzhaoErrors, QueryQpShowsThePsnsThatTheQueuePairHasComeTo) {
  make();
  const auto piece = a->piece(0, 3000);  // three packets
  ASSERT_EQ(outcome(request(SendOpcode::kRdmaWrite, piece)), WorkStatus::kSuccess);
  b->receive(1, 0, 3000);
  ASSERT_EQ(outcome(request(SendOpcode::kSend, piece)), WorkStatus::kSuccess);
  util::Struct<qp_context> sender, receiver;
  must(a->qp->query(sender));
  must(b->qp->query(receiver));
  EXPECT_EQ(sender.get(qp_context::next_send_psn), (kPsnA + 6) & 0xFFFFFF);
  EXPECT_EQ(receiver.get(qp_context::epsn), (kPsnA + 6) & 0xFFFFFF);
  EXPECT_EQ(sender.get(qp_context::last_acked_psn), (kPsnA + 5) & 0xFFFFFF);
  EXPECT_EQ(sender.get(qp_context::sq_wqe_counter), 2u);
  EXPECT_EQ(receiver.get(qp_context::rq_wqe_counter), 1u);
  EXPECT_EQ(sender.get(qp_context::opt_param_mask), 0u);
  EXPECT_EQ(sender.get(qp_context::remote_qpn), b->qp->qpn());
  EXPECT_EQ(qp_state(sender.get(qp_context::state)), qp_state::RTS);
}

}  // namespace
}  // namespace softhca::jingzhao::test
