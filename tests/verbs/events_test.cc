// Completion events (IBTA 11.4.2.2) and asynchronous events (11.6.3), on every device.
#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

class Events : public Verbs {
 protected:
  /// The next event of `side`, without "communication established".
  std::optional<AsyncEvent> next_of(Side& side) {
    std::optional<AsyncEvent> event;
    do event = wait_event(side.device);
    while (event && event->type == AsyncEventType::kCommunicationEstablished);
    return event;
  }
  std::optional<std::uint32_t> completion_event(Device& device) {
    std::optional<std::uint32_t> found;
    lab().run_until([&] {
      found = device.poll_completion_event();
      return found.has_value();
    });
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Events, testing::ValuesIn(all_pairs()), name_of);

TEST_P(Events, AnArmedQueueReportsACompletionOnce) {
  connect_sides();
  b().receive(1, 0, 64);
  b().receive(2, 0, 64);
  b().receive_cq.arm();
  EXPECT_FALSE(completion_event(b().device)) << "nothing has completed";
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  EXPECT_EQ(completion_event(b().device), b().receive_cq.number());
  EXPECT_EQ(wait(b().receive_cq).size(), 1u);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  EXPECT_FALSE(completion_event(b().device)) << "it was not armed again";
  EXPECT_EQ(wait(b().receive_cq).size(), 1u);
}

TEST_P(Events, AQueueThatIsArmedAgainReportsAgain) {
  connect_sides();
  for (unsigned round = 0; round != 5; ++round) {
    b().receive(round, 0, 64);
    b().receive_cq.arm();
    ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
    EXPECT_EQ(completion_event(b().device), b().receive_cq.number()) << round;
    EXPECT_EQ(wait(b().receive_cq).size(), 1u);
  }
}

// IBTA 9.2.3, 11.4.2.2: "solicited completion".
TEST_P(Events, AQueueArmedForSolicitedOnesReportsNoOther) {
  NEEDS(kSolicited);
  connect_sides();
  b().receive(1, 0, 64);
  b().receive(2, 0, 64);
  b().receive_cq.arm(true);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  EXPECT_FALSE(completion_event(b().device));
  const auto piece = a().region.piece(0, 8);
  ASSERT_EQ(a().qp.post_send({.pieces = {&piece, 1}, .solicited = true}), PostStatus::kOk);
  EXPECT_EQ(completion_event(b().device), b().receive_cq.number());
}

TEST_P(Events, TheFirstPacketInRtrEstablishesTheCommunication) {
  make_sides({});
  const auto end_a = describe(a().qp);
  must(connect(a().qp, describe(b().qp)));
  must(to_init(b().qp));
  must(to_rtr(b().qp, end_a));
  b().receive(1, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  const auto event = wait_event(b().device);
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kCommunicationEstablished));
  EXPECT_EQ(event->number, b().qp.number());
}

TEST_P(Events, AForbiddenRequestIsReportedToItsTarget) {
  connect_sides();
  const auto piece = a().region.piece(0, 8);
  ASSERT_EQ(a().qp.post_send({.opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(),
                              .rkey = b().region.rkey() ^ 0x100}),
            PostStatus::kOk);
  const auto event = next_of(b());
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kQpAccessError));
  EXPECT_EQ(event->number, b().qp.number());
}

// IBTA 10.3.1.6, 11.6.3.1: "Send Queue Drained".
TEST_P(Events, ADrainedQueuePairReportsItOnceAndKeepsWhatIsPosted) {
  connect_sides();
  b().receive(1, 0, 64);
  b().receive(2, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8, 3), PostStatus::kOk);
  expect_success(wait(a().send_cq), 3, CompletionOpcode::kSend);
  must(a().qp.modify({.state = QpState::kSqDrain}));
  const auto event = next_of(a());
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kSqDrained));
  EXPECT_EQ(event->number, a().qp.number());
  ASSERT_EQ(a().send(SendOpcode::kSend, 8, 4), PostStatus::kOk);
  EXPECT_TRUE(wait(a().send_cq).empty());
  EXPECT_FALSE(next_of(a()));
  must(a().qp.modify({.state = QpState::kRts}));
  expect_success(wait(a().send_cq), 4, CompletionOpcode::kSend);
}

// IBTA 11.6.3.1: "Last WQE Reached", of a queue pair with an SRQ that goes to ERR.
TEST_P(Events, AQueuePairWithAnSrqReportsThatItTakesNoMore) {
  NEEDS(kSharedReceiveQueues);
  make_sides({.with_srq = true});
  must(connect(a().qp, b().qp));
  must(b().qp.to_error());
  const auto event = next_of(b());
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kLastWqeReached));
  EXPECT_EQ(event->number, b().qp.number());
}

// IBTA 10.2.6.1: an overrun of a CQ is an error of the CQ.
TEST_P(Events, AQueueThatRunsOverReportsIt) {
  make_sides({.cq_entries = 4});
  must(connect(a().qp, b().qp));
  const auto entries = b().receive_cq.entries();
  for (unsigned i = 0; i != entries + 2; ++i) b().receive(i, 0, 64);
  const auto piece = a().region.piece(0, 8);
  for (unsigned i = 0; i != entries + 2; ++i) {
    ASSERT_EQ(a().qp.post_send({.pieces = {&piece, 1}, .signaled = false}), PostStatus::kOk);
  }
  const auto event = next_of(b());
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kCqError));
  EXPECT_EQ(event->number, b().receive_cq.number());
}

}  // namespace
}  // namespace softhca::driver::verbs::test
