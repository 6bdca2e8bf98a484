// Faults that a user injects into queue pairs, as their drivers see them.
#include "connectx/fault_names.h"
#include "driver/world.h"
#include "hca/faults.h"

namespace softhca::driver::test {
namespace {

using connectx::QpState;
namespace hca = softhca::hca;

class QueuePairFaults : public ::testing::Test {
 protected:
  QueuePairFaults() {
    world_.a().device->faults().set_rules(faults_);
    world_.open();
    make();
  }
  void make(const connectx::Connection& connection = {}) {
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
    connect(*a_, *b_, connection);
    fill(a_->bytes(0, 4096), 1);
  }
  hca::FaultId add(std::string text) {
    const auto placed = text.find('@');  // the QPN
    if (placed != std::string::npos) text.replace(placed, 1, std::to_string(a_->qp->qpn()));
    const auto id = faults_.add(must(hca::parse_fault(text, softhca::connectx::fault_names())));
    world_.a().device->faults().follow_rules();
    return id;
  }
  void remove(hca::FaultId id) {
    EXPECT_TRUE(faults_.remove(id));
    world_.a().device->faults().follow_rules();
  }
  void write(std::uint64_t id, std::size_t offset = 0) {
    const auto piece = a_->piece(offset, 64);
    ASSERT_EQ(a_->qp->post_send({.id = id,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .pieces = {&piece, 1},
                                 .remote_address = b_->address(offset),
                                 .rkey = b_->key->key()}),
              PostStatus::kOk);
  }
  void send(Endpoint& from, std::uint64_t id) {
    const auto piece = from.piece(0, 64);
    ASSERT_EQ(from.qp->post_send({.id = id, .opcode = SendOpcode::kSend, .pieces = {&piece, 1}}),
              PostStatus::kOk);
  }
  /// Nothing completes, however long the program waits.
  void expect_silence() {
    world_.advance(std::chrono::seconds(20));
    std::array<Completion, 1> none;
    EXPECT_EQ(a_->send_cq->poll(none), 0u);
  }
  bool arrived(std::size_t offset) {
    return std::ranges::equal(a_->bytes(offset, 64), b_->bytes(offset, 64));
  }

  hca::Faults faults_;
  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
};

TEST_F(QueuePairFaults, ARequestEndsWithTheStatusOfTheRuleAndTheQpFails) {
  const auto rule = add("qp=@,opcode=RDMA_WRITE,nth=2,do=fail-request,status=REM_ACCESS_ERR");
  write(1);
  write(2, 64);
  write(3, 128);
  const auto done = wait(world_, *a_->send_cq, 3);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
  EXPECT_EQ(done[1].id, 2u);
  EXPECT_EQ(done[1].status, WorkStatus::kRemoteAccess);
  EXPECT_EQ(done[2].status, WorkStatus::kFlushed);
  EXPECT_TRUE(arrived(0));
  EXPECT_FALSE(arrived(64)) << "it was not executed";
  EXPECT_EQ(must(a_->qp->query_state()), QpState::kError);
  EXPECT_EQ(must(b_->qp->query_state()), QpState::kRts) << "the peer has noticed nothing";
  EXPECT_EQ(faults_.find(rule)->fired, 1u);
}

TEST_F(QueuePairFaults, RetriesThatRanOutCanBeInjected) {
  add("do=fail-request,status=RETRY_EXC_ERR");
  write(1);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kTransportRetryExceeded);
}

TEST_F(QueuePairFaults, ARuleForAnotherOpcodeOrQpHasNoEffect) {
  add("qp=@,opcode=SEND,do=fail-request,status=RETRY_EXC_ERR");
  add("qp=0xffffff,do=stall-send");
  write(1);
  EXPECT_EQ(wait(world_, *a_->send_cq).at(0).status, WorkStatus::kSuccess);
}

TEST_F(QueuePairFaults, AStalledSendQueueGoesOnInOrderWhenTheRuleIsRemoved) {
  const auto rule = add("qp=@,nth=2,do=stall-send");
  write(1);
  write(2, 64);
  write(3, 128);
  EXPECT_EQ(wait(world_, *a_->send_cq).at(0).id, 1u);
  expect_silence();
  EXPECT_FALSE(arrived(64));
  write(4, 192);
  expect_silence();
  EXPECT_EQ(faults_.find(rule)->matched, 2u);
  remove(rule);
  const auto done = wait(world_, *a_->send_cq, 3);
  ASSERT_EQ(done.size(), 3u);
  for (std::size_t i = 0; i != 3; ++i) {
    EXPECT_EQ(done[i].id, i + 2);
    EXPECT_EQ(done[i].status, WorkStatus::kSuccess);
    EXPECT_TRUE(arrived(64 * (i + 1)));
  }
}

TEST_F(QueuePairFaults, AStalledQpThatGoesToErrorFlushesInOrder) {
  add("do=stall-send");
  write(1);
  write(2, 64);
  expect_silence();
  must(a_->qp->to_error());
  const auto done = wait(world_, *a_->send_cq, 2);
  ASSERT_EQ(done.size(), 2u);
  for (std::size_t i = 0; i != 2; ++i) {
    EXPECT_EQ(done[i].id, i + 1);
    EXPECT_EQ(done[i].status, WorkStatus::kFlushed);
  }
  EXPECT_FALSE(arrived(0));
}

TEST_F(QueuePairFaults, AStalledQpThatIsResetForgetsItsRequests) {
  const auto rule = add("do=stall-send");
  write(1);
  expect_silence();
  must(a_->qp->to_reset());
  must(b_->qp->to_reset());
  connect(*a_, *b_);
  remove(rule);
  write(2, 64);
  const auto done = wait(world_, *a_->send_cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 2u);
  EXPECT_FALSE(arrived(0));
}

TEST_F(QueuePairFaults, AQpThatIsMadeLaterFollowsTheRules) {
  add("do=stall-send");
  make();
  write(1);
  expect_silence();
}

TEST_F(QueuePairFaults, APeerOfAStalledReceiveSideRunsOutOfRetries) {
  world_.b();
  must(a_->qp->to_reset());
  must(b_->qp->to_reset());
  connect(*a_, *b_, {.rnr_retry = 2});
  const auto rule = add("qp=@,do=stall-receive");
  a_->receive(7, 0, 64);
  send(*b_, 1);
  expect_error(wait(world_, *b_->send_cq), 1, WorkStatus::kRnrRetryExceeded);
  EXPECT_GE(faults_.find(rule)->fired, 2u);
}

TEST_F(QueuePairFaults, AStalledReceiveSideGoesOnWhenTheRuleIsRemoved) {
  const auto rule = add("do=stall-receive");
  a_->receive(7, 0, 64);
  send(*b_, 1);
  world_.advance(std::chrono::milliseconds(100));
  std::array<Completion, 1> none;
  EXPECT_EQ(a_->receive_cq->poll(none), 0u);
  remove(rule);
  EXPECT_EQ(wait(world_, *a_->receive_cq).at(0).id, 7u);
  EXPECT_EQ(wait(world_, *b_->send_cq).at(0).status, WorkStatus::kSuccess);
}

TEST_F(QueuePairFaults, AStalledCqDropsTheCompletionsOfAQpThatIsReset) {
  const auto rule = add("do=stall-cq");
  write(1);
  expect_silence();
  EXPECT_TRUE(arrived(0));
  must(a_->qp->to_reset());
  remove(rule);
  expect_silence();
  EXPECT_EQ(a_->send_cq->strays(), 0u);
}

TEST_F(QueuePairFaults, AfterTheLastRuleIsRemovedQpsWorkAsBefore) {
  const auto rule = add("every=2,do=stall-send");
  remove(rule);
  for (std::uint64_t id = 1; id <= 8; ++id) write(id, 64 * id);
  for (const auto& done : wait(world_, *a_->send_cq, 8)) {
    EXPECT_EQ(done.status, WorkStatus::kSuccess);
  }
}

}  // namespace
}  // namespace softhca::driver::test
