// Completion queues: events, wrap-around, overrun, and CQEs that destroyed QPs leave behind.
#include <cstring>

#include "driver/world.h"

namespace softhca::driver::test {
namespace {

class CompletionQueues : public ::testing::Test {
 protected:
  CompletionQueues() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a(), Endpoint::Options{.cq_entries = 16});
    b_ = std::make_unique<Endpoint>(world_.b(), Endpoint::Options{.cq_entries = 64});
    connect(*a_, *b_);
  }
  void send(bool solicited) {
    ASSERT_EQ(a_->qp->post_send({.id = 1, .inline_data = data_, .solicited = solicited}),
              PostStatus::kOk);
    expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kSend);
  }
  connectx::Hca& hca_b() { return *world_.b().hca; }
  std::uint64_t interrupts() const { return world_b_host().interrupts(1); }
  const InProcessHost& world_b_host() const { return *b_->node.host; }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::array<std::byte, 8> data_{};
};

TEST_F(CompletionQueues, AnArmedQueueMakesOneEventAndOneInterrupt) {
  for (std::uint64_t i = 0; i < 10; ++i) b_->receive(i, 0, 64);
  const auto before = interrupts();
  b_->receive_cq->arm();
  EXPECT_EQ(hca_b().poll_completion_event(), nullptr);
  send(false);
  send(false);
  EXPECT_EQ(interrupts(), before + 1);
  EXPECT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get());
  EXPECT_EQ(hca_b().poll_completion_event(), nullptr) << "one event until it is armed again";
  hca_b().completion_events().arm();

  EXPECT_EQ(wait(world_, *b_->receive_cq, 2).size(), 2u);
  b_->receive_cq->arm();
  send(false);
  EXPECT_EQ(interrupts(), before + 2);
  EXPECT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get());
}

TEST_F(CompletionQueues, ArmingWithUnpolledCompletionsMakesTheEventAtOnce) {
  for (std::uint64_t i = 0; i < 10; ++i) b_->receive(i, 0, 64);
  send(false);
  EXPECT_EQ(hca_b().poll_completion_event(), nullptr);
  b_->receive_cq->arm();
  world_.progress();
  EXPECT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get());
}

TEST_F(CompletionQueues, ArmedForSolicitedOnlyItWaitsForASolicitedSend) {
  for (std::uint64_t i = 0; i < 10; ++i) b_->receive(i, 0, 64);
  b_->receive_cq->arm(/*solicited_only=*/true);
  send(false);
  EXPECT_EQ(hca_b().poll_completion_event(), nullptr);
  send(true);
  EXPECT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get());
}

TEST_F(CompletionQueues, AnErrorCountsAsSolicited) {
  b_->receive(1, 0, 64);
  b_->receive_cq->arm(/*solicited_only=*/true);
  must(b_->qp->to_error());
  EXPECT_EQ(wait(world_, *b_->receive_cq).size(), 1u);
  EXPECT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get());
}

TEST_F(CompletionQueues, ManyEventsGoThroughManyLapsOfTheEventQueue) {
  // 5000 CQEs through 2048 entries.
  for (int i = 0; i < 5000; ++i) {
    b_->receive(1, 0, 64);
    b_->receive_cq->arm();
    send(false);
    ASSERT_EQ(hca_b().poll_completion_event(), b_->receive_cq.get()) << i;
    ASSERT_EQ(wait(world_, *b_->receive_cq).size(), 1u);
  }
}

TEST_F(CompletionQueues, CompletionsComeInOrderOverManyLaps) {
  const auto piece = a_->piece(0, 8);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(a_->qp->post_send({.id = i,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .pieces = {&piece, 1},
                                 .remote_address = b_->address(),
                                 .rkey = b_->key->key()}),
              PostStatus::kOk);
    if (i % 7 != 6) continue;
    const auto completions = wait(world_, *a_->send_cq, 7);
    ASSERT_EQ(completions.size(), 7u) << i;
    for (const auto& done : completions) EXPECT_EQ(done.id, expected++);
  }
  EXPECT_EQ(expected, 994u);
}

TEST_F(CompletionQueues, OverrunRaisesAnErrorEventAndEndsTheQueuePair) {
  while (must(world_.a().hca->poll_event())) {
  }
  // 16 entries, 17 completions, no poll.
  const auto piece = a_->piece(0, 8);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(a_->qp->post_send({.id = i,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .pieces = {&piece, 1},
                                 .remote_address = b_->address(),
                                 .rkey = b_->key->key()}),
              PostStatus::kOk);
  }
  world_.advance(std::chrono::milliseconds(1));
  using connectx::spec::event_data_cq_error;
  using connectx::spec::event_type;
  bool found = false;
  while (const auto event = must(world_.a().hca->poll_event())) {
    if (event->type != event_type::CQ_ERROR) continue;
    found = true;
    const auto data = event->as<event_data_cq_error>();
    EXPECT_EQ(data.get(event_data_cq_error::cqn), a_->send_cq->cqn());
    EXPECT_EQ(data.get(event_data_cq_error::syndrome), 1u);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(must(a_->qp->query_state()), connectx::QpState::kError);
  // CQEs written before the overrun stay valid.
  Completion done;
  for (std::uint64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(a_->send_cq->poll({&done, 1}), 1u);
    EXPECT_EQ(done.id, i);
  }
  EXPECT_EQ(a_->send_cq->poll({&done, 1}), 0u);
}

TEST_F(CompletionQueues, ExactlyFullIsNoOverrun) {
  const auto piece = a_->piece(0, 8);
  for (int round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) {
      ASSERT_EQ(a_->qp->post_send({.id = i,
                                   .opcode = SendOpcode::kRdmaWrite,
                                   .pieces = {&piece, 1},
                                   .remote_address = b_->address(),
                                   .rkey = b_->key->key()}),
                PostStatus::kOk);
    }
    world_.advance(std::chrono::milliseconds(1));
    ASSERT_EQ(wait(world_, *a_->send_cq, 16).size(), 16u);
  }
}

TEST_F(CompletionQueues, CompletionsOfADestroyedQueuePairAreSkipped) {
  auto& hca = *world_.a().hca;
  const auto shared = must(connectx::CompletionQueue::create(hca, {.entries = 64}));
  auto make = [&] {
    return must(connectx::QueuePair::create(*a_->pd, {.send_cq = *shared, .receive_cq = *shared}));
  };
  auto first = make();
  auto second = make();
  must(first->modify(connectx::QpState::kReset, connectx::QpState::kInit, {}));
  must(second->modify(connectx::QpState::kReset, connectx::QpState::kInit, {}));
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(first->post_receive({.id = i}), PostStatus::kOk);
    ASSERT_EQ(second->post_receive({.id = 100 + i}), PostStatus::kOk);
  }
  // The swept CQEs stand behind the ones that stay.
  must(second->to_error());
  world_.advance(std::chrono::milliseconds(1));
  must(first->to_error());
  world_.advance(std::chrono::milliseconds(1));
  must(first->destroy());
  for (std::uint64_t i = 0; i < 5; ++i) {
    expect_error(wait(world_, *shared), 100 + i, WorkStatus::kFlushed);
  }
  Completion none;
  EXPECT_EQ(shared->poll({&none, 1}), 0u);
  EXPECT_EQ(shared->strays(), 0u);
}

TEST_F(CompletionQueues, ACompletionVectorHasItsOwnEventQueueAndInterrupt) {
  auto& node = world_.b();
  a_ = nullptr;
  b_ = nullptr;
  must(node.hca->close());
  node.open({.completion_vectors = 4});
  a_ = std::make_unique<Endpoint>(world_.a());
  b_ = std::make_unique<Endpoint>(node);
  const auto cq =
      must(connectx::CompletionQueue::create(*node.hca, {.entries = 16, .event_vector = 3}));
  b_->qp = must(connectx::QueuePair::create(*b_->pd, {.send_cq = *cq, .receive_cq = *cq}));
  connect(*a_, *b_);
  b_->receive(1, 0, 64);
  cq->arm();
  send(false);
  EXPECT_EQ(node.host->interrupts(4), 1u);
  EXPECT_EQ(node.hca->poll_completion_event(0), nullptr);
  EXPECT_EQ(node.hca->poll_completion_event(3), cq.get());
  b_->qp = nullptr;
}

}  // namespace
}  // namespace softhca::driver::test
