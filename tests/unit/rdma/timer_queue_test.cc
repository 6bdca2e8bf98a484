// The cost of timers, counted in moves within the queue, does not depend on the number of QPs.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fabric/switch.h"
#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma::test {
namespace {

using namespace std::chrono_literals;

class NoQueues final : public WorkQueues {
  Fetch fetch_send(SendRequest&) override { return Fetch::kNothing; }
  void restart_send() override {}
  Fetch fetch_receive(ReceiveRequest&, XrcSrqn) override { return Fetch::kNothing; }
  void complete_send(const SendCompletion&) override {}
  void complete_receive(const ReceiveCompletion&) override {}
  void handle_event(QpEvent, Reason) override {}
};

struct Many {
  explicit Many(std::uint32_t count) {
    for (std::uint32_t i = 0; i != count; ++i) {
      qps.push_back(&engine.qps.insert(std::make_unique<QueuePair>(
          engine, Qpn(i + 2), QpType::kRc, QpAttributes{}, QpOptions{}, queues)));
    }
  }

  pcie::DmaSpace dma;
  KeyTable keys{dma, KeyShape(8, 24)};
  util::Notes notes{"many"};
  fabric::Switch network;
  std::unique_ptr<fabric::Port> port = network.create_port("many");
  NoQueues queues;
  Engine engine{*port, keys, notes, {}};
  std::vector<QueuePair*> qps;
};

constexpr auto kTimeout = 67ms;  // the drivers' default: ack_timeout 14
constexpr unsigned kMessages = 40'000;

constexpr unsigned kBatch = 32;

/// Moves for one message on each QP in turn, a microsecond apart. All are answered before the next
/// batch.
std::uint64_t moves_of_answered_messages(std::uint32_t qps) {
  Many many(qps);
  auto& timers = many.engine.timers;
  util::Time now{1s};
  for (unsigned i = 0; i != kMessages; ++i, now += 1us) {
    std::int64_t work = 1'000'000;
    EXPECT_EQ(timers.expired(now, work), nullptr);
    timers.arm(*many.qps[i % qps], Timer::kAck, now + kTimeout);
    if ((i + 1) % kBatch != 0) continue;
    for (unsigned k = i + 1 - kBatch; k <= i; ++k) timers.stop(*many.qps[k % qps], Timer::kAck);
    EXPECT_EQ(timers.next(), util::kNever);
  }
  const auto moves = timers.moves();
  for (auto* qp : many.qps) timers.remove(*qp);
  return moves;
}

TEST(TimerQueue, AnsweredMessagesOfManyQpsCostNoMoreThanThoseOfFew) {
  EXPECT_LE(moves_of_answered_messages(1), kMessages);
  EXPECT_LE(moves_of_answered_messages(10'000), kMessages);
}

TEST(TimerQueue, AQpThatWasAnsweredLeavesItsPlaceToTheNext) {
  Many many(3);
  auto& timers = many.engine.timers;
  util::Time now{1s};
  std::int64_t work = 1'000'000;
  timers.arm(*many.qps[0], Timer::kAck, now + 5ms);
  timers.stop(*many.qps[0], Timer::kAck);
  timers.arm(*many.qps[1], Timer::kAck, now + 7ms);
  EXPECT_EQ(timers.moves(), 2u);
  EXPECT_EQ(timers.next(), now + 7ms);
  EXPECT_FALSE(timers.due(now + 6ms));
  // The first QP behaves as if it had never had a place.
  timers.arm(*many.qps[0], Timer::kAck, now + 6ms);
  timers.arm(*many.qps[2], Timer::kAck, now + 8ms);
  for (const auto expected : {0, 1, 2}) {
    now = util::Time{1s} + 6ms + expected * 1ms;
    EXPECT_EQ(timers.expired(now, work), many.qps[expected]);
    timers.remove(*many.qps[expected]);
  }
  EXPECT_EQ(timers.next(), util::kNever);
}

TEST(TimerQueue, NextIsTheEarliestOfThoseThatAreArmed) {
  Many many(4);
  auto& timers = many.engine.timers;
  const util::Time now{1s};
  std::int64_t work = 1'000'000;
  timers.arm(*many.qps[0], Timer::kAck, now + 1ms);
  timers.arm(*many.qps[1], Timer::kRnr, now + 2ms);
  timers.arm(*many.qps[1], Timer::kAck, now + 3ms);
  timers.stop(*many.qps[0], Timer::kAck);
  timers.stop(*many.qps[0], Timer::kAck);  // repeated calls are harmless
  EXPECT_EQ(timers.next(), now + 2ms);
  EXPECT_EQ(timers.expired(now + 2ms, work), many.qps[1]);
  timers.stop(*many.qps[1], Timer::kRnr);
  EXPECT_EQ(timers.expired(now + 2ms, work), nullptr);
  EXPECT_EQ(timers.next(), now + 3ms);
  timers.remove(*many.qps[1]);
  timers.remove(*many.qps[0]);
  EXPECT_EQ(timers.next(), util::kNever);
  timers.arm(*many.qps[2], Timer::kAck, now + 4ms);
  timers.arm(*many.qps[2], Timer::kAck, now + 5ms);
  EXPECT_LE(timers.next(), now + 5ms);
  timers.stop(*many.qps[2], Timer::kAck);
  EXPECT_EQ(timers.next(), util::kNever);
}

}  // namespace
}  // namespace softhca::rdma::test
