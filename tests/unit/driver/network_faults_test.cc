// Every kind of network fault, as a driver sees it: statuses, retries, events, counters.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver/connectx/verbs_events.h"
#include "driver/world.h"
#include "util/inspected.h"

namespace softhca::driver::test {
namespace {

using namespace std::chrono_literals;

/// The ACK timeout of the tests, 4.096 us * 2^8.
constexpr std::uint8_t kTimeout = 8;
constexpr auto kTimeoutLeast = 1048us;

class NetworkFaultsTest : public ::testing::Test {
 protected:
  NetworkFaultsTest() { world_.open(); }

  void make(std::uint8_t retries = 2) {
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
    connect(*a_, *b_, {.path_mtu = 256, .ack_timeout = kTimeout, .retry_count = retries});
    fill(a_->memory, 1);
  }
  /// Connects again, with ECT(0) in the traffic class.
  void allow_marks() {
    using connectx::QpState;
    for (auto* from : {a_.get(), b_.get()}) {
      const auto& to = from == a_.get() ? *b_ : *a_;
      must(from->qp->to_reset());
      must(from->qp->modify(QpState::kReset, QpState::kInit, {.access = connectx::RemoteAccess{}}));
      must(from->qp->modify(
          QpState::kInit, QpState::kRtr,
          {.path = verbs::Path{.gid = to.node.gid, .mac = to.node.mac, .traffic_class = 2},
           .path_mtu = 256,
           .receive_psn = 0,
           .max_peer_reads = 1,
           .destination_qpn = to.qp->qpn()}));
      must(
          from->qp->modify(QpState::kRtr, QpState::kRts,
                           {.timeout = kTimeout, .retry_count = 2, .send_psn = 0, .max_reads = 1}));
    }
  }
  const fabric::NetworkFaults::Counters& add(std::string_view rule) {
    return world_.add_fault(rule);
  }
  std::vector<Completion> write(std::size_t size) { return post(SendOpcode::kRdmaWrite, size); }
  std::vector<Completion> read(std::size_t size) { return post(SendOpcode::kRdmaRead, size); }
  std::vector<Completion> post(SendOpcode opcode, std::size_t size) {
    const auto piece = a_->piece(0, size);
    const auto begin = world_.now();
    EXPECT_EQ(a_->qp->post_send({.id = 7,
                                 .opcode = opcode,
                                 .pieces = {&piece, 1},
                                 .remote_address = b_->address(),
                                 .rkey = b_->key->key()}),
              PostStatus::kOk);
    auto done = wait(world_, *a_->send_cq);
    took_ = world_.now() - begin;
    return done;
  }
  void expect_written(std::size_t size) {
    expect_success(write(size), 7, CompletionOpcode::kRdmaWrite);
    EXPECT_TRUE(std::ranges::equal(a_->bytes(0, size), b_->bytes(0, size)));
  }
  std::uint64_t drops(const Node& node, const char* why) {
    return nlohmann::json::parse(
        softhca::test::inspected(*node.device, {.json = true}))["rdma_drops"][why];
  }
  /// The port events of a device since the last call.
  std::vector<verbs::AsyncEventType> port_events(Node& node) {
    std::vector<verbs::AsyncEventType> events;
    while (const auto event = must(node.hca->poll_event())) {
      events.push_back(connectx::translate_event(*event).type);
    }
    return events;
  }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  util::Duration took_{};
};

TEST_F(NetworkFaultsTest, ALostMiddleEndsInANakAndARetry) {
  make();
  const auto& lost = add("port=connectx0,opcode=RC_RDMA_WRITE_MIDDLE,nth=2,do=lose");
  expect_written(2000);
  EXPECT_EQ(lost.fired, 1u);
  EXPECT_GT(drops(world_.b(), "out of sequence"), 0u);
  EXPECT_LT(took_, kTimeoutLeast);
}

TEST_F(NetworkFaultsTest, ALostLastPacketEndsInATimeoutAndARetry) {
  make();
  add("port=connectx1,direction=rx,opcode=RC_RDMA_WRITE_LAST,nth=1,do=lose");
  expect_written(2000);
  EXPECT_GE(took_, kTimeoutLeast);
}

TEST_F(NetworkFaultsTest, EveryAckLostEndsInRetriesExceeded) {
  make();
  const auto& acks = add("port=connectx1,opcode=ack,do=lose");
  expect_error(write(64), 7, WorkStatus::kTransportRetryExceeded);
  EXPECT_EQ(acks.fired, 3u);  // of the request and of two retries
}

TEST_F(NetworkFaultsTest, TheThirdReadResponseOfAQueuePairIsLostAndReadAgain) {
  make();
  fill(b_->memory, 2);
  const auto rule = fmt::format(
      "port=connectx0,direction=rx,qp={:#x},opcode=read-response,nth=3,do=lose", a_->qp->qpn());
  const auto& responses = add(rule);
  expect_success(read(2000), 7, CompletionOpcode::kRdmaRead);
  EXPECT_TRUE(std::ranges::equal(a_->bytes(0, 2000), b_->bytes(0, 2000)));
  EXPECT_EQ(responses.fired, 1u);
  EXPECT_GT(responses.matched, 8u) << "the rest is read again";
}

TEST_F(NetworkFaultsTest, ADuplicateIsDroppedAndDoesNoHarm) {
  make();
  add("port=*,direction=both,do=duplicate");
  expect_written(2000);
  fill(a_->memory, 5);
  expect_written(2000);
}

TEST_F(NetworkFaultsTest, AReorderedPacketEndsInANakAndARetry) {
  make();
  const auto& late = add("port=connectx0,opcode=write,nth=3,do=reorder,distance=2");
  expect_written(2000);
  EXPECT_EQ(late.fired, 1u);
  EXPECT_GT(drops(world_.b(), "out of sequence"), 0u);
}

TEST_F(NetworkFaultsTest, ADelayIsLatency) {
  make();
  add("port=connectx0,direction=both,do=delay,time=200us");
  expect_written(64);
  EXPECT_GE(took_, 400us);
  EXPECT_LT(took_, kTimeoutLeast);
}

TEST_F(NetworkFaultsTest, ADelayBeyondTheTimeoutIsARetry) {
  make();
  const auto& requests = add("port=connectx0,opcode=write,nth=1,do=delay,time=50ms");
  expect_written(64);
  EXPECT_GE(took_, kTimeoutLeast);
  EXPECT_LT(took_, 50ms);
  EXPECT_EQ(requests.matched, 2u);
}

TEST_F(NetworkFaultsTest, ACorruptPacketIsCountedAsAWrongIcrcAndRepeated) {
  for (const auto* const part : {"header", "payload", "icrc"}) {
    make();
    const auto before = drops(world_.b(), "wrong ICRC");
    add(fmt::format("port=connectx0,opcode=write,nth=1,do=corrupt,part={}", part));
    expect_written(64);
    EXPECT_EQ(drops(world_.b(), "wrong ICRC"), before + 1) << part;
    EXPECT_GE(took_, kTimeoutLeast);
    world_.faults().clear();
  }
}

TEST_F(NetworkFaultsTest, ALimitIsTheBandwidth) {
  make();
  add("port=connectx0,do=limit,rate=100mbit");
  // 63 packets of 256 bytes and their headers, at 12.5 MB/s.
  expect_written(16000);
  EXPECT_GE(took_, 1280us);
  EXPECT_LT(took_, 2ms);
}

TEST_F(NetworkFaultsTest, WhatTheQueueOfALimitDoesNotHoldIsLostAndRepeated) {
  make(7);
  const auto& limit = add("port=connectx0,do=limit,rate=100mbit,queue=4K");
  expect_written(8000);
  EXPECT_GT(limit.lost, 0u);
}

TEST_F(NetworkFaultsTest, APauseIsLatencyWithoutLoss) {
  make();
  const auto& pause = add("port=connectx0,nth=1,do=pause,time=500us");
  expect_written(2000);
  EXPECT_GE(took_, 500us);
  EXPECT_LT(took_, kTimeoutLeast);
  EXPECT_EQ(pause.lost, 0u);
}

TEST_F(NetworkFaultsTest, APacketThatAllowsItIsMarkedAndAnsweredByACnp) {
  make();
  const auto& marks = add("port=connectx0,opcode=write,do=mark-ecn");
  const auto& notices = add("port=connectx1,opcode=cnp,do=duplicate");
  expect_written(64);
  EXPECT_EQ(marks.matched, 1u);
  EXPECT_EQ(marks.fired, 0u) << "the path's traffic class does not allow it";
  allow_marks();
  expect_written(64);
  EXPECT_EQ(marks.fired, 1u);
  EXPECT_EQ(notices.matched, 1u);
}

TEST_F(NetworkFaultsTest, AMarkByQueueLengthWaitsForTheQueue) {
  make();
  allow_marks();
  add("port=connectx0,do=limit,rate=1gbit");
  const auto& long_queue = add("port=connectx0,opcode=write,do=mark-ecn,queue=64K");
  const auto& short_queue = add("port=connectx0,opcode=write,do=mark-ecn,queue=8K");
  expect_written(16000);
  EXPECT_EQ(long_queue.fired, 0u);
  EXPECT_GT(short_queue.fired, 10u);
  EXPECT_LT(short_queue.fired, 40u);
}

TEST_F(NetworkFaultsTest, ALinkThatGoesDownAndUpIsTwoPortEvents) {
  using enum verbs::AsyncEventType;
  make();
  world_.advance(200ms);
  (void)port_events(world_.a());
  const auto& down = add("port=connectx0,do=link-down,time=300ms");
  world_.advance(200ms);
  EXPECT_EQ(port_events(world_.a()), std::vector{kPortDown});
  EXPECT_FALSE(must(world_.a().hca->link_is_up()));
  EXPECT_TRUE(must(world_.b().hca->link_is_up()));
  world_.advance(300ms);
  EXPECT_EQ(port_events(world_.a()), std::vector{kPortActive});
  EXPECT_TRUE(must(world_.a().hca->link_is_up()));
  EXPECT_EQ(down.fired, 1u);
  expect_written(2000);
}

TEST_F(NetworkFaultsTest, ALinkThatStaysDownEndsInRetriesExceeded) {
  make();
  const auto& down = add("port=connectx1,direction=both,opcode=write,nth=1,do=link-down");
  expect_error(write(64), 7, WorkStatus::kTransportRetryExceeded);
  EXPECT_EQ(down.fired, 1u);
  EXPECT_EQ(down.lost, 2u) << "the retries";
}

TEST_F(NetworkFaultsTest, TheSameRulesGiveTheSameResult) {
  std::vector<std::pair<util::Duration, std::uint64_t>> results;
  for (int run = 0; run != 2; ++run) {
    World world;
    world.open();
    const auto& loss = world.add_fault("port=*,probability=0.1,seed=5,do=lose");
    Endpoint a(world.a()), b(world.b());
    connect(a, b, {.path_mtu = 256, .ack_timeout = kTimeout});
    const auto begin = world.now();
    const auto piece = a.piece(0, 30000);
    EXPECT_EQ(a.qp->post_send({.opcode = SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    EXPECT_EQ(wait(world, *a.send_cq).size(), 1u);
    results.emplace_back(world.now() - begin, loss.matched.load());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace softhca::driver::test
