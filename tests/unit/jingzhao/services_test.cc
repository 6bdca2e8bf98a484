// UC and UD queue pairs, loss, and many queue pairs over a small cache (JingZhao 1.2, 3.2.6).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using driver::SendRequest;
using spec::jingzhao::qp_type;

Side::Options of(qp_type type) {
  Side::Options options;
  options.type = type;
  return options;
}

TEST(JingzhaoUc, SendsAndWritesArriveWithoutAcknowledgments) {
  World world;
  world.open();
  Side a(world.a(), of(qp_type::UC)), b(world.b(), of(qp_type::UC));
  connect(a, b);
  fill(a.memory, 1);
  b.receive(3, 0x1000, 0x4000);
  const auto piece = a.piece(0, 5000);
  ASSERT_EQ(a.qp->post_send({.id = 1, .pieces = {&piece, 1}}), PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 1, CompletionOpcode::kSend);
  expect_success(wait(world, *b.receive_cq), 3, CompletionOpcode::kReceive);
  EXPECT_TRUE(same(a.bytes(0, 5000), b.bytes(0x1000, 5000)));
  ASSERT_EQ(a.qp->post_send({.id = 2,
                             .opcode = SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(0x8000),
                             .rkey = b.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 2, CompletionOpcode::kRdmaWrite);
  world.advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(same(a.bytes(0, 5000), b.bytes(0x8000, 5000)));
}

TEST(JingzhaoUc, ImmediateDataComeWithTheOpcodeOfTheService) {
  World world;
  world.open();
  Side a(world.a(), of(qp_type::UC)), b(world.b(), of(qp_type::UC));
  connect(a, b);
  const auto piece = a.piece(0, 3000);
  for (const auto& [opcode, received] :
       {std::pair{SendOpcode::kSendWithImmediate, CompletionOpcode::kReceive},
        {SendOpcode::kRdmaWriteWithImmediate, CompletionOpcode::kReceiveRdmaWithImmediate}}) {
    b.receive(3, 0x1000, 0x4000);
    ASSERT_EQ(a.qp->post_send({.id = 1,
                               .opcode = opcode,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(0x8000),
                               .rkey = b.key->key(),
                               .immediate = 0x11223344}),
              PostStatus::kOk);
    const auto done = wait(world, *b.receive_cq);
    expect_success(done, 3, received);
    EXPECT_EQ(done[0].immediate, 0x11223344u);
  }
}

TEST(JingzhaoUc, ReadsAreAnOperationOfAnotherService) {
  World world;
  world.open();
  Side a(world.a(), of(qp_type::UC)), b(world.b(), of(qp_type::UC));
  connect(a, b);
  const auto piece = a.piece(0, 100);
  ASSERT_EQ(a.qp->post_send({.id = 1, .opcode = SendOpcode::kRdmaRead, .pieces = {&piece, 1}}),
            PostStatus::kOk);
  expect_error(wait(world, *a.send_cq), 1, WorkStatus::kLocalQpOperation);
}

class JingzhaoUd : public testing::Test {
 protected:
  JingzhaoUd() {
    world.open();
    a.emplace(world.a(), of(qp_type::UD));
    b.emplace(world.b(), of(qp_type::UD));
    must(a->qp->listen(world.a().address, kQkey));
    must(b->qp->listen(world.b().address, kQkey));
    fill(a->memory, 1);
  }
  jz::Datagram to_b(std::uint32_t qkey = kQkey) {
    return {.to = world.b().address, .qpn = b->qp->qpn(), .qkey = qkey};
  }
  World world;
  std::optional<Side> a;
  std::optional<Side> b;
};

TEST_F(JingzhaoUd, ADatagramBeginsAtTheFirstByteAndNamesItsSender) {
  b->receive(3, 0x1000, 0x400);
  const auto piece = a->piece(0x10, 500);
  ASSERT_EQ(a->qp->post_send({.id = 1,
                              .opcode = SendOpcode::kSendWithImmediate,
                              .pieces = {&piece, 1},
                              .immediate = 0xABCD},
                             to_b()),
            PostStatus::kOk);
  const auto received = wait(world, *b->receive_cq);
  expect_success(received, 3, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, 500u);
  EXPECT_EQ(received[0].source_qpn, a->qp->qpn());
  EXPECT_EQ(received[0].immediate, 0xABCDu);
  EXPECT_TRUE(same(a->bytes(0x10, 500), b->bytes(0x1000, 500)));
  expect_success(wait(world, *a->send_cq), 1, CompletionOpcode::kSend);
}

TEST_F(JingzhaoUd, ADatagramWithAnotherQkeyIsDropped) {
  b->receive(3, 0x1000, 0x400);
  const auto piece = a->piece(0x10, 500);
  ASSERT_EQ(a->qp->post_send({.id = 1, .pieces = {&piece, 1}}, to_b(0x2222)), PostStatus::kOk);
  EXPECT_TRUE(wait(world, *b->receive_cq).empty());
  ASSERT_EQ(a->qp->post_send({.id = 1, .pieces = {&piece, 1}}, to_b(0x80000000)), PostStatus::kOk);
  EXPECT_EQ(wait(world, *b->receive_cq).size(), 1u) << "the sender's own";
}

// CONF_SPECIAL_QP: op_modifier 1 makes a QP the port's GSI (docs/jingzhao.md, gap 7).
TEST_F(JingzhaoUd, DatagramsToQp1ArriveAtTheQueuePairThatIsTheGsi) {
  // IBTA 10.2.5: GSI traffic uses the well-known Q_Key. Only a QP with that Q_Key can send it.
  Side c(world.a(), of(qp_type::UD));
  must(c.qp->listen(world.a().address, 0x80010000));
  const auto piece = c.piece(0, 100);
  auto to_gsi = to_b(0x80010000);
  to_gsi.qpn = 1;
  b->receive(3, 0x1000, 0x400);
  ASSERT_EQ(c.qp->post_send({.id = 1, .pieces = {&piece, 1}}, to_gsi), PostStatus::kOk);
  EXPECT_TRUE(wait(world, *b->receive_cq).empty());
  const auto configure = [&](std::uint8_t what) {
    return world.b().hca->run({.op = spec::jingzhao::command_opcode::CONF_SPECIAL_QP,
                               .in_modifier = b->qp->qpn(),
                               .op_modifier = what});
  };
  EXPECT_FALSE(configure(4)) << "there is no such special QP";
  must(configure(1));
  ASSERT_EQ(c.qp->post_send({.id = 2, .pieces = {&piece, 1}}, to_gsi), PostStatus::kOk);
  expect_success(wait(world, *b->receive_cq), 3, CompletionOpcode::kReceive);
}

TEST_F(JingzhaoUd, AQp1ThatIsMadeLaterDoesNotTakeThePlaceOfTheGsi) {
  constexpr std::uint32_t kGsiQkey = 0x80010000;
  Side c(world.a(), of(qp_type::UD)), late(world.b(), of(qp_type::UD));
  must(c.qp->listen(world.a().address, kGsiQkey));
  must(world.b().hca->run({.op = spec::jingzhao::command_opcode::CONF_SPECIAL_QP,
                           .in_modifier = b->qp->qpn(),
                           .op_modifier = 1}));
  late.qp = must(jz::QueuePair::create(*world.b().hca, {.send_cq = *late.send_cq,
                                                        .receive_cq = *late.receive_cq,
                                                        .type = qp_type::UD,
                                                        .pd = late.pd,
                                                        .inline_size = 0,
                                                        .gsi = true}));
  must(late.qp->listen(world.b().address, kGsiQkey));
  auto to_gsi = to_b(kGsiQkey);
  to_gsi.qpn = 1;
  b->receive(3, 0x1000, 0x400);
  late.receive(4, 0x1000, 0x400);
  const auto piece = c.piece(0, 100);
  ASSERT_EQ(c.qp->post_send({.id = 2, .pieces = {&piece, 1}}, to_gsi), PostStatus::kOk);
  expect_success(wait(world, *b->receive_cq), 3, CompletionOpcode::kReceive);
  EXPECT_TRUE(wait(world, *late.receive_cq).empty());
}

TEST_F(JingzhaoUd, AQueuePairReachesAnotherOfItsOwnDevice) {
  Side c(world.a(), of(qp_type::UD));
  must(c.qp->listen(world.a().address, kQkey));
  c.receive(3, 0x1000, 0x400);
  const auto piece = a->piece(0, 100);
  ASSERT_EQ(a->qp->post_send({.id = 1, .pieces = {&piece, 1}},
                             {.to = world.a().address, .qpn = c.qp->qpn(), .qkey = kQkey}),
            PostStatus::kOk);
  expect_success(wait(world, *c.receive_cq), 3, CompletionOpcode::kReceive);
}

/// Parameters: the link, and the seed that decides which packets are lost.
class JingzhaoLoss : public ::testing::TestWithParam<std::tuple<wire::Link, unsigned>> {};

INSTANTIATE_TEST_SUITE_P(Seeds, JingzhaoLoss,
                         ::testing::Combine(::testing::Values(wire::Link::kEthernet,
                                                              wire::Link::kInfiniband),
                                            ::testing::Range(1u, 9u)));

// On InfiniBand SMPs are lost, too, and ports still come up.
TEST_P(JingzhaoLoss, EverythingArrivesOnceOverALinkThatLosesAndReorders) {
  const auto [link, seed] = GetParam();
  World world({.card = {.link = link}});
  const auto& lost = world.add_fault(fmt::format("port=*,probability=0.05,seed={},do=lose", seed));
  world.add_fault(fmt::format("port=*,probability=0.02,seed={},do=duplicate", seed + 100));
  world.add_fault(fmt::format("port=*,probability=0.05,seed={},do=reorder,distance=3", seed + 200));
  world.open();
  Side a(world.a()), b(world.b());
  connect(a, b, {.ack_timeout = 8});
  fill(a.memory, 1);
  for (unsigned i = 0; i != 50; ++i) {
    b.receive(i, 0x8000, 0x4000);
    const auto piece = a.piece(i * 100, 9000);
    ASSERT_EQ(a.qp->post_send({.id = i, .pieces = {&piece, 1}}), PostStatus::kOk);
    expect_success(wait(world, *b.receive_cq), i, CompletionOpcode::kReceive);
    ASSERT_TRUE(same(a.bytes(i * 100, 9000), b.bytes(0x8000, 9000))) << i;
    expect_success(wait(world, *a.send_cq), i, CompletionOpcode::kSend);
  }
  EXPECT_GT(lost.fired, 0u);
}

std::uint64_t value_of(const std::string& tree, std::string_view part, std::string_view name) {
  auto at = tree.find(std::string("\n    ") + std::string(part) + ":");
  if (at == std::string::npos) at = tree.find(part);
  at = tree.find(name, at);
  return std::stoull(tree.substr(tree.find(": ", at) + 2));
}

TEST(JingzhaoIcmCache, OfFewEntriesServesManyQueuePairsAndCountsItsMisses) {
  constexpr unsigned kPairs = 1000;
  World world({.card = {.icm_cache = 64}});
  world.open({.log_qps = 11, .log_cqs = 12});
  std::vector<std::unique_ptr<Side>> as, bs;
  Side::Options small;
  small.memory = 4096;
  small.cq_entries = 16;
  small.requests = 8;
  for (unsigned i = 0; i != kPairs; ++i) {
    as.push_back(std::make_unique<Side>(world.a(), small));
    bs.push_back(std::make_unique<Side>(world.b(), small));
    connect(*as[i], *bs[i]);
    fill(as[i]->memory, i);
  }
  for (unsigned round = 0; round != 3; ++round) {
    for (unsigned i = 0; i != kPairs; ++i) {
      bs[i]->receive(round, 1000, 1000);
      const auto piece = as[i]->piece(100 * round, 900);
      ASSERT_EQ(as[i]->qp->post_send({.id = round, .pieces = {&piece, 1}}), PostStatus::kOk);
    }
    for (unsigned i = 0; i != kPairs; ++i) {
      expect_success(wait(world, *bs[i]->receive_cq), round, CompletionOpcode::kReceive);
      expect_success(wait(world, *as[i]->send_cq), round, CompletionOpcode::kSend);
      ASSERT_TRUE(same(as[i]->bytes(100 * round, 900), bs[i]->bytes(1000, 900))) << i;
    }
  }
  const auto tree = inspect(*world.b().device);
  EXPECT_GT(value_of(tree, "qpc", "hits"), 0u);
  for (const auto* table : {"qpc", "cqc", "mpt"}) {
    EXPECT_GT(value_of(tree, table, "misses"), kPairs) << table << "\n" << tree.substr(0, 3000);
    EXPECT_GT(value_of(tree, table, "evictions"), kPairs) << table;
    EXPECT_EQ(value_of(tree, table, "lost"), 0u) << table;
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
