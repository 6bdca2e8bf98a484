// Two JingZhao devices on an InfiniBand switch: ports come up without software, MADs set LIDs and
// states, and every service works by LID.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "jingzhao/mad_status.h"
#include "jingzhao/world.h"
#include "spec/infiniband/mad.h"
#include "subnet/mad.h"
#include "subnet/manager.h"
#include "util/work_budget.h"

namespace softhca::jingzhao::test {
namespace {

using spec::infiniband::port_info;
using spec::infiniband::port_state;
using spec::infiniband::sm_attribute;
using subnet::Mad;
using subnet::MadStatus;
using subnet::Method;
using subnet::Smp;
using Type = spec::jingzhao::qp_type;

World::Options on_infiniband() { return {.card = {.link = wire::Link::kInfiniband}}; }

class InfinibandWorld : public World, public ::testing::Test {
 public:
  InfinibandWorld() : World(on_infiniband()) { open(); }
};

/// An SMP for software's own port.
Mad smp_of(Method method, sm_attribute attribute, std::uint32_t modifier = 0) {
  Mad mad{};
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(subnet::MadClass::SUBN_LID_ROUTED));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::method, static_cast<std::uint32_t>(method));
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(attribute));
  smp.set(Smp::attribute_modifier, modifier);
  return mad;
}

TEST_F(InfinibandWorld, PortsComeUpByThemselvesWithLidsThatMadsHaveSet) {
  EXPECT_EQ(a().address.lid, 2);
  EXPECT_EQ(b().address.lid, 3);
  for (auto* node : {&a(), &b()}) {
    const auto port = must(node->hca->query_port());
    EXPECT_TRUE(port.infiniband);
    EXPECT_EQ(port_state(port.state), port_state::ACTIVE);
  }
  EXPECT_EQ(subnet()->manager().count(), 3u) << "with the switch itself";
  // Eleven requests for each port, none repeated.
  EXPECT_EQ(subnet()->manager().counters().requests, 22u);
  EXPECT_EQ(subnet()->manager().counters().repeated, 0u);
  EXPECT_EQ(subnet()->manager().counters().refused, 0u);
  for (const std::uint8_t port : {1, 2}) {
    EXPECT_EQ(subnet()->agent().state(port), port_state::ACTIVE);
    EXPECT_EQ(subnet()->agent().way_to(wire::Lid(static_cast<std::uint16_t>(port + 1))), port);
  }
}

TEST_F(InfinibandWorld, ReliableOperationsMoveTheirData) {
  Side left(a()), right(b());
  connect(left, right);
  fill(left.bytes(0, 20000), 1);
  fill(right.bytes(40000, 9000), 2);
  const auto value = std::uint64_t{40};
  std::memcpy(right.bytes(60000, 8).data(), &value, 8);
  right.receive(7, 0, 20000);
  const auto message = left.piece(0, 20000);
  ASSERT_EQ(
      left.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}}),
      PostStatus::kOk);
  expect_success(wait(*this, *right.receive_cq), 7, CompletionOpcode::kReceive);
  expect_success(wait(*this, *left.send_cq), 1, CompletionOpcode::kSend);
  EXPECT_TRUE(same(left.bytes(0, 20000), right.bytes(0, 20000)));
  const auto written = left.piece(0, 9000);
  ASSERT_EQ(left.qp->post_send({.id = 2,
                                .opcode = driver::SendOpcode::kRdmaWrite,
                                .pieces = {&written, 1},
                                .remote_address = right.address(20000),
                                .rkey = right.key->key()}),
            PostStatus::kOk);
  expect_success(wait(*this, *left.send_cq), 2, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(same(left.bytes(0, 9000), right.bytes(20000, 9000)));
  const auto read = left.piece(30000, 9000);
  ASSERT_EQ(left.qp->post_send({.id = 3,
                                .opcode = driver::SendOpcode::kRdmaRead,
                                .pieces = {&read, 1},
                                .remote_address = right.address(40000),
                                .rkey = right.key->key()}),
            PostStatus::kOk);
  expect_success(wait(*this, *left.send_cq), 3, CompletionOpcode::kRdmaRead);
  EXPECT_TRUE(same(left.bytes(30000, 9000), right.bytes(40000, 9000)));
  const auto old = left.piece(50000, 8);
  ASSERT_EQ(left.qp->post_send({.id = 4,
                                .opcode = driver::SendOpcode::kFetchAdd,
                                .pieces = {&old, 1},
                                .remote_address = right.address(60000),
                                .rkey = right.key->key(),
                                .swap_or_add = 2}),
            PostStatus::kOk);
  expect_success(wait(*this, *left.send_cq), 4, CompletionOpcode::kFetchAdd);
  std::uint64_t before = 0, after = 0;
  std::memcpy(&before, left.bytes(50000, 8).data(), 8);
  std::memcpy(&after, right.bytes(60000, 8).data(), 8);
  EXPECT_EQ(before, 40u);
  EXPECT_EQ(after, 42u);
}

TEST_F(InfinibandWorld, UnreliableMessagesArrive) {
  Side left(a(), {.type = Type::UC}), right(b(), {.type = Type::UC});
  connect(left, right);
  fill(left.bytes(0, 9000), 1);
  right.receive(7, 0, 9000);
  const auto message = left.piece(0, 9000);
  ASSERT_EQ(
      left.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}}),
      PostStatus::kOk);
  expect_success(wait(*this, *right.receive_cq), 7, CompletionOpcode::kReceive);
  EXPECT_TRUE(same(left.bytes(0, 9000), right.bytes(0, 9000)));
}

// JingZhao table of 3.3.1.1: rlid, the remote LID.
TEST_F(InfinibandWorld, ADatagramGivesTheLidThatItCameFrom) {
  Side left(a(), {.type = Type::UD}), right(b(), {.type = Type::UD});
  must(left.qp->listen(a().address, kQkey));
  must(right.qp->listen(b().address, kQkey));
  fill(left.bytes(0, 3000), 1);
  right.receive(7, 0, 3000);
  const auto message = left.piece(0, 3000);
  ASSERT_EQ(
      left.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}},
                         {.to = b().address, .qpn = right.qp->qpn(), .qkey = kQkey}),
      PostStatus::kOk);
  const auto received = wait(*this, *right.receive_cq);
  expect_success(received, 7, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].source_lid, a().address.lid);
  EXPECT_EQ(received[0].source_qpn, left.qp->qpn());
  EXPECT_TRUE(same(left.bytes(0, 3000), right.bytes(0, 3000)));
}

TEST_F(InfinibandWorld, AQueuePairReachesAnotherOfItsOwnPort) {
  Side left(a()), right(a());
  connect(left, right);
  fill(left.bytes(0, 100), 1);
  right.receive(7, 0, 100);
  const auto message = left.piece(0, 100);
  ASSERT_EQ(
      left.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}}),
      PostStatus::kOk);
  expect_success(wait(*this, *right.receive_cq), 7, CompletionOpcode::kReceive);
  EXPECT_TRUE(same(left.bytes(0, 100), right.bytes(0, 100)));
}

// IBTA 7.2.7: a port that is not active sends no data.
TEST_F(InfinibandWorld, DataWaitUntilTheManagerMakesTheLinkActiveAgain) {
  Side left(a()), right(b());
  connect(left, right);
  auto mad = smp_of(Method::GET, sm_attribute::PORT_INFO);
  must(a().hca->process_mad(mad));
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
  const util::MutableView<port_info> info(smp.sub(Smp::data));
  const auto set_state = [&](port_state state) {
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    info.set(port_info::port_state, static_cast<std::uint32_t>(state));
    must(a().hca->process_mad(mad));
    return status_of(mad);
  };
  ASSERT_EQ(set_state(port_state::DOWN), MadStatus::OK);
  EXPECT_EQ(port_state(must(a().hca->query_port()).state), port_state::INIT);
  EXPECT_EQ(must(a().hca->query_port()).lid, a().address.lid);
  const auto message = left.piece(0, 100);
  right.receive(7, 0, 100);
  ASSERT_EQ(
      left.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&message, 1}}),
      PostStatus::kOk);
  advance(std::chrono::milliseconds(10));
  EXPECT_EQ(right.receive_cq->poll(std::span<Completion>(std::array<Completion, 1>().data(), 1)),
            0u);
  // 7.2.7: from INIT only to ARMED.
  EXPECT_EQ(set_state(port_state::ACTIVE), MadStatus::INVALID_VALUE);
  ASSERT_EQ(set_state(port_state::ARMED), MadStatus::OK);
  ASSERT_EQ(set_state(port_state::ACTIVE), MadStatus::OK);
  expect_success(wait(*this, *right.receive_cq), 7, CompletionOpcode::kReceive);
}

TEST_F(InfinibandWorld, ThePortReportsThatItHasComeUpOrGoneDown) {
  while (a().hca->poll_event()) {
  }
  auto mad = smp_of(Method::GET, sm_attribute::PORT_INFO);
  must(a().hca->process_mad(mad));
  const util::MutableView<Smp> smp(mad);
  const util::MutableView<port_info> info(smp.sub(Smp::data));
  for (const auto state : {port_state::DOWN, port_state::ARMED, port_state::ACTIVE}) {
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    info.set(port_info::port_state, static_cast<std::uint32_t>(state));
    must(a().hca->process_mad(mad));
  }
  std::vector<spec::jingzhao::port_change_subtype> seen;
  run_until([&] {
    while (const auto event = a().hca->poll_event()) {
      EXPECT_EQ(event->type, spec::jingzhao::event_type::PORT_CHANGE);
      seen.push_back(spec::jingzhao::port_change_subtype(event->subtype));
    }
    return seen.size() == 2;
  });
  EXPECT_EQ(seen, (std::vector{spec::jingzhao::port_change_subtype::DOWN,
                               spec::jingzhao::port_change_subtype::UP}));
}

TEST_F(InfinibandWorld, AMadThatChangesThePortIsChargedForEveryQueuePair) {
  constexpr std::int64_t kSides = 16, kEach = 50;
  std::uint16_t pkey = 0x8001;
  const auto work_of_set = [&] {
    auto mad = smp_of(Method::SET, sm_attribute::P_KEY_TABLE);
    const util::MutableView<Smp> smp(mad);
    util::store_be16(smp.sub(Smp::data).data(), 0xFFFF);
    util::store_be16(smp.sub(Smp::data).data() + 2, ++pkey);
    const auto before = a().device->work_done();
    must(a().hca->process_mad(mad));
    EXPECT_EQ(status_of(mad), MadStatus::OK);
    return a().device->work_done() - before;
  };
  std::vector<std::unique_ptr<Side>> sides;
  const auto add = [&] {
    sides.push_back(std::make_unique<Side>(a(), Side::Options{.type = Type::UD}));
    must(sides.back()->qp->listen(a().address, kQkey));
  };
  // With one queue pair, the whole table is walked.
  add();
  const auto alone = work_of_set();
  for (std::int64_t i = 0; i != kSides; ++i) add();
  EXPECT_GE(work_of_set() - alone, kSides * kEach);
}

TEST_F(InfinibandWorld, AChangeOfThePortReachesQueuePairsOverTurns) {
  constexpr std::int64_t kSides = 16, kTurn = 400, kEach = 80;
  std::vector<std::unique_ptr<Side>> sides;
  for (std::int64_t i = 0; i != kSides; ++i) {
    sides.push_back(std::make_unique<Side>(a(), Side::Options{.type = Type::UD}));
    must(sides.back()->qp->listen(a().address, kQkey));
  }
  auto mad = smp_of(Method::SET, sm_attribute::P_KEY_TABLE);
  util::store_be16(util::MutableView<Smp>(mad).sub(Smp::data).data(), 0x8005);
  must(a().hca->process_mad(mad));
  advance(std::chrono::milliseconds(1));
  auto& queue_pairs = *a().device->objects().queue_pairs;
  for (const auto& side : sides) {
    const auto* qp = std::as_const(queue_pairs).find(Qpn(side->qp->qpn()));
    EXPECT_EQ(qp->rdma_qp().pkey(), 0x8005);
  }

  queue_pairs.take_link_attributes();
  unsigned turns = 0;
  for (auto next = now(); next <= now(); ++turns) {
    ASSERT_LT(turns, 1000u);
    util::WorkBudget work(kTurn);
    next = queue_pairs.run(now(), work);
    EXPECT_LE(work.done(), kTurn + kEach);
  }
  EXPECT_GE(turns, kSides * kEach / kTurn);
}

TEST_F(InfinibandWorld, AResetOfTheFunctionLeavesThePortAsTheManagerHasMadeIt) {
  a().hca = nullptr;
  a().open();
  const auto port = must(a().hca->query_port());
  EXPECT_EQ(port.lid, a().address.lid);
  EXPECT_TRUE(port.up());
}

TEST(RoceWorld, APortOfRoceAnswersNoMads) {
  World world;
  world.open();
  auto mad = smp_of(Method::GET, sm_attribute::NODE_INFO);
  EXPECT_FALSE(world.a().hca->process_mad(mad));
  EXPECT_FALSE(must(world.a().hca->query_port()).infiniband);
}

}  // namespace
}  // namespace softhca::jingzhao::test
