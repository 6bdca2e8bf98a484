// CLOSE_HCA and resets of an HCA with many objects, which are destroyed over several turns
// (JingZhao 3.2.1.4).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "jingzhao/errors.h"
#include "jingzhao/icm_host.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;

/// A queue pair in INIT.
void create_bare_qp(Device& device, std::uint32_t qpn, std::uint32_t cqn) {
  using Context = spec::jingzhao::qp_context;
  util::Struct<Context> context;
  context.set(Context::local_qpn, qpn);
  context.set(Context::cqn_snd, cqn);
  context.set(Context::cqn_rcv, cqn);
  context.set(Context::state, static_cast<std::uint32_t>(spec::jingzhao::qp_state::INIT));
  ASSERT_TRUE(device.objects().queue_pairs->modify(
      Qpn(qpn), rdma::QpState::kReset, rdma::QpState::kInit, util::View<Context>(context.bytes())));
}

class JingzhaoClose : public JingzhaoIcm {
 protected:
  static constexpr unsigned kLogQps = 11, kLogCqs = 13;
  static constexpr std::uint32_t kFirstQpn = 8, kQps = 1500, kCqs = 8000;
  static constexpr std::int64_t kQpWork = 1000, kCqWork = 100;
  /// A turn may end with a piece of work that is as large as the turn.
  static constexpr std::int64_t kTurnMax = 2 * pcie::Function::kRunWork;
  static_assert(kQps * kQpWork > kTurnMax && kCqs * kCqWork > kTurnMax);

  /// INIT_HCA with tables for many objects, and one CQ.
  void begin() {
    constexpr std::uint64_t kQpcs = 0x1000000, kCqcs = 0x2000000;
    map_table(kQpcs, limits::kQpcSize << kLogQps);
    map_table(kCqcs, limits::kCqcSize << kLogCqs);
    h.put_init();
    h.put64(0x08, kQpcs | kLogQps);
    h.put64(0x10, kCqcs | kLogCqs);
    ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
    h.clear_mailbox();
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  }
  void make_queue_pairs() {
    for (std::uint32_t i = 0; i != kQps; ++i) create_bare_qp(h.device, kFirstQpn + i, 0);
    settle();
  }
  void start(command_opcode op, const RawHost::Call& call = {}) {
    h.start(static_cast<std::uint32_t>(op), call);
  }
  bool busy() { return (h.read(h.hcr_at + 0x18) >> 23 & 1) != 0; }
  /// Closes the HCA in one turn, and returns the work done before that.
  std::int64_t close() {
    const auto before = h.device.work_done();
    start(command_opcode::CLOSE_HCA);
    h.device.run(now);
    EXPECT_FALSE(busy());
    EXPECT_FALSE(h.device.initialized());
    return before;
  }
  /// Runs the device until it waits. Returns the work of the longest turn.
  std::int64_t longest_turn() {
    std::int64_t longest = 0;
    for (bool waits = false; !waits;) {
      const auto before = h.device.work_done();
      waits = h.device.run(now) > now;
      longest = std::max(longest, h.device.work_done() - before);
    }
    return longest;
  }

 private:
  void map_table(std::uint64_t virt, std::size_t size) {
    const auto memory = h.host.allocate(size).value();
    ASSERT_EQ(h.map(1, virt, memory.iova, static_cast<std::uint32_t>(size / Icm::kPage)), OK);
  }
};

TEST_F(JingzhaoClose, ManyQueuePairsAreDestroyedOverTurns) {
  const std::function<void()> ends[] = {[this] { start(command_opcode::CLOSE_HCA); },
                                        [this] { h.write(RawHost::kReset, 1); },
                                        [this] { h.device.reset(); }};
  for (const auto& end : ends) {
    begin();
    make_queue_pairs();
    const auto before = h.device.work_done();
    end();
    EXPECT_LE(longest_turn(), kTurnMax);
    EXPECT_GE(h.device.work_done() - before, kQps * kQpWork);
    ASSERT_FALSE(h.device.initialized());
  }
}

TEST_F(JingzhaoClose, ManyCqsAreDestroyedOverTurns) {
  begin();
  const util::Struct<spec::jingzhao::cq_context> context;
  for (std::uint32_t cqn = 1; cqn <= kCqs; ++cqn) {
    ASSERT_TRUE(h.device.objects().completion_queues->install(Cqn(cqn), context));
  }
  settle();
  const auto before = h.device.work_done();
  start(command_opcode::CLOSE_HCA);
  EXPECT_LE(longest_turn(), kTurnMax);
  EXPECT_GE(h.device.work_done() - before, kCqs * kCqWork);
}

// The next HCA may have as many objects again. Other commands make none, and the author's driver
// waits for no command.
TEST_F(JingzhaoClose, InitHcaAloneWaitsUntilAllObjectsAreGone) {
  begin();
  make_queue_pairs();
  const auto before = close();
  const auto done = [&] { return h.device.work_done() - before; };
  start(command_opcode::NOP, {.in_modifier = 0x1F});
  h.device.run(now);
  EXPECT_FALSE(busy());
  ASSERT_LT(done(), kQps * kQpWork) << "some are left";
  h.put_init();
  start(command_opcode::INIT_HCA, {.in_param = h.in.iova});
  h.device.run(now);
  EXPECT_TRUE(busy());
  EXPECT_FALSE(h.device.initialized());
  ASSERT_LT(done(), kQps * kQpWork) << "some are left";
  constexpr unsigned kMost = 100;
  for (unsigned turns = 0; busy() && turns != kMost; ++turns) h.device.run(now);
  EXPECT_TRUE(h.device.initialized());
  EXPECT_GE(done(), kQps * kQpWork);
}

TEST_F(JingzhaoClose, AResetWhileObjectsAreDestroyedChangesNothingForThem) {
  begin();
  make_queue_pairs();
  const auto before = close();
  start(command_opcode::INIT_HCA);
  h.device.reset();
  EXPECT_FALSE(busy());
  ASSERT_LT(h.device.work_done() - before, kQps * kQpWork);
  EXPECT_LE(longest_turn(), kTurnMax);
  EXPECT_GE(h.device.work_done() - before, kQps * kQpWork);
  driver::enable_bus_master(h.host);
  begin();
  EXPECT_TRUE(h.device.initialized());
}

class JingzhaoClosedHca : public JingzhaoErrors {};

// Software has rung a doorbell, a receive is posted, and the peer goes on sending.
TEST_F(JingzhaoClosedHca, DoesNothingMoreWhileItsObjectsAreDestroyed) {
  constexpr std::uint32_t kFirstQpn = 100, kEndQpn = 1000;
  make({}, impatient());
  fill(a->memory, 1);
  fill(b->memory, 2);
  const auto memory_of_a = a->memory, memory_of_b = b->memory;
  auto& device = *world.b().device;
  for (auto qpn = kFirstQpn; qpn != kEndQpn; ++qpn) {
    create_bare_qp(device, qpn, b->send_cq->cqn());
  }
  b->receive(1, 0, 100);
  const auto from_b = b->piece(0, 100);
  ASSERT_EQ(b->qp->post_send({.id = 8,
                              .opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&from_b, 1},
                              .remote_address = a->address(),
                              .rkey = a->key->key()}),
            PostStatus::kOk);
  must(world.b().hca->run({.op = command_opcode::CLOSE_HCA}));
  const auto before = device.work_done();
  const auto from_a = a->piece(0, 100);
  EXPECT_EQ(outcome(request(SendOpcode::kSend, from_a)), WorkStatus::kTransportRetryExceeded);
  EXPECT_GE(device.work_done() - before, (kEndQpn - kFirstQpn) * 1000) << "they were there";
  EXPECT_TRUE(same(a->memory, memory_of_a));
  EXPECT_TRUE(same(b->memory, memory_of_b));
  Completion none;
  EXPECT_EQ(b->send_cq->poll({&none, 1}), 0u);
  EXPECT_EQ(b->receive_cq->poll({&none, 1}), 0u);
}

}  // namespace
}  // namespace softhca::jingzhao::test
