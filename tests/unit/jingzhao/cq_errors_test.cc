// Errors, commands and events of CQs in use (JingZhao 3.2.5, 3.3.1).
#include <gtest/gtest.h>

#include "jingzhao/errors.h"
#include "jingzhao/spoiler.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using spec::jingzhao::command_opcode;
using spec::jingzhao::event_type;
using spec::jingzhao::qp_state;

TEST_F(JingzhaoErrors, ACqWithoutRoomIsAnErrorAndEndsItsQueuePairs) {
  Side::Options options;
  options.cq_entries = 4;
  make(options);
  const auto piece = a->piece(0, 10);
  for (unsigned i = 0; i != 5; ++i) {
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
    world.advance(std::chrono::milliseconds(1));
  }
  const auto overrun = event(world.a());
  ASSERT_TRUE(overrun);
  EXPECT_EQ(overrun->type, event_type::CQ_ERROR);
  EXPECT_EQ(overrun->number, a->send_cq->cqn());
  EXPECT_EQ(overrun->syndrome, 1);
  const auto catastrophic = event(world.a());
  ASSERT_TRUE(catastrophic);
  EXPECT_EQ(catastrophic->type, event_type::WQ_CATAS_ERROR);
  EXPECT_EQ(catastrophic->number, a->qp->qpn());
  EXPECT_EQ(must(a->qp->query_state()), qp_state::ERR);
  EXPECT_EQ(wait(world, *a->send_cq, 4).size(), 4u) << "those before it are there";
}

// docs/jingzhao.md, gap 19.
TEST_F(JingzhaoErrors, TakingBackACqInUseSucceedsAndEndsItsQueuePairs) {
  make();
  auto& hca = *world.a().hca;
  const auto take_back = [&] {
    return hca.run({.op = command_opcode::HW2SW_CQ, .in_modifier = a->send_cq->cqn()});
  };
  must(take_back());
  const auto catastrophic = event(world.a());
  ASSERT_TRUE(catastrophic);
  EXPECT_EQ(catastrophic->type, event_type::WQ_CATAS_ERROR);
  EXPECT_EQ(catastrophic->number, a->qp->qpn());
  EXPECT_EQ(must(a->qp->query_state()), qp_state::ERR);
  EXPECT_FALSE(take_back()) << "it is not there any more";
  EXPECT_EQ(must(b->qp->query_state()), qp_state::RTS);
}

TEST_F(JingzhaoErrors, ACqIsNotMadeSmallerThanWhatItHolds) {
  make();
  const auto piece = a->piece(0, 10);
  for (unsigned i = 0; i != 17; ++i) {
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
  }
  world.advance(std::chrono::milliseconds(1));
  EXPECT_FALSE(a->send_cq->resize(16));
  must(a->send_cq->resize(32));
  EXPECT_EQ(wait(world, *a->send_cq, 1).size(), 1u);
  must(a->send_cq->resize(16));
  EXPECT_EQ(wait(world, *a->send_cq, 16).size(), 16u);
}

TEST_F(JingzhaoErrors, ACqWhoseMemoryIsGoneIsAnError) {
  make();
  take_memory_of_cq();
  write();
  expect_cq_error();
}

TEST_F(JingzhaoErrors, ACachedCqWhoseMemoryWentIsAnError) {
  make();
  write();
  ASSERT_EQ(wait(world, *a->send_cq).size(), 1u);
  take_memory_of_cq();
  write();
  expect_cq_error();
}

TEST_F(JingzhaoErrors, ResizedCqKeepsWhatIsInItAndGoesOn) {
  make();
  const auto piece = a->piece(0, 10);
  std::uint64_t id = 0;
  const auto post = [&](unsigned count) {
    for (unsigned i = 0; i != count; ++i) {
      auto write = request(SendOpcode::kRdmaWrite, piece);
      write.id = id++;
      ASSERT_EQ(a->qp->post_send(write), PostStatus::kOk);
    }
    world.advance(std::chrono::milliseconds(1));
  };
  std::uint64_t seen = 0;
  const auto take = [&](unsigned count) {
    const auto done = wait(world, *a->send_cq, count);
    ASSERT_EQ(done.size(), count);
    for (const auto& one : done) EXPECT_EQ(one.id, seen++);
  };
  post(20);
  take(17);
  for (const auto entries : {64u, 16u, 512u}) {
    must(a->send_cq->resize(entries));
    post(5);
    take(8);
    post(3);
  }
}

/// Memory of the node's CQC table: 1,024 contexts of 128 bytes.
std::span<std::byte> cqc_table(Node& node) {
  for (const auto& region : Spoiler::of(node).regions()) {
    if (region.bytes.size() == 1024 * limits::kCqcSize) return region.bytes;
  }
  return {};
}

// 3.2.5.1: status.
TEST(JingzhaoSmallCache, ACqInErrorHasItsStatusInItsContext) {
  using spec::jingzhao::cq_context;
  using spec::jingzhao::cq_status;
  World world({.card = {.icm_cache = 1}, .make_host = Spoiler::make()});
  world.open();
  Side a(world.a(), {.cq_entries = 4}), b(world.b());
  connect(a, b);
  const auto table = cqc_table(world.a());
  ASSERT_FALSE(table.empty());
  const auto status = [&](const jz::CompletionQueue& cq) {
    const util::View<cq_context> context(table.subspan(cq.cqn() * std::size_t{limits::kCqcSize}));
    return cq_status(context.get(cq_context::status));
  };
  const auto piece = a.piece(0, 10);
  for (unsigned i = 0; i != 5; ++i) {
    ASSERT_EQ(a.qp->post_send({.opcode = SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    world.advance(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(must(a.qp->query_state()), qp_state::ERR);
  // The other CQs' contexts evict this CQ's context from the chip.
  const Side other(world.a());
  EXPECT_EQ(status(*a.send_cq), cq_status::OVERFLOW);
  EXPECT_EQ(status(*a.receive_cq), cq_status::OK);
}

}  // namespace
}  // namespace softhca::jingzhao::test
