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

/// A device with room for one context, so that the contexts of other CQs evict that of a CQ in
/// error to host memory.
class JingzhaoSmallCache : public testing::Test {
 protected:
  using Status = spec::jingzhao::cq_status;

  JingzhaoSmallCache() : world({.card = {.icm_cache = 1}, .make_host = Spoiler::make()}) {
    world.open();
    a.emplace(world.a(), Side::Options{.cq_entries = 4});
    b.emplace(world.b());
    connect(*a, *b);
  }
  /// Writes more than the CQ has entries for.
  void overrun() {
    const auto piece = a->piece(0, 10);
    for (unsigned i = 0; i != 5; ++i) {
      ASSERT_EQ(a->qp->post_send({.opcode = SendOpcode::kRdmaWrite,
                                  .pieces = {&piece, 1},
                                  .remote_address = b->address(),
                                  .rkey = b->key->key()}),
                PostStatus::kOk);
      world.advance(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(must(a->qp->query_state()), qp_state::ERR);
    const Side other(world.a());
  }
  Status status(const jz::CompletionQueue& cq) {
    using spec::jingzhao::cq_context;
    const auto at = cq.cqn() * std::size_t{limits::kCqcSize};
    const util::View<cq_context> context(cqc_table(world.a()).subspan(at));
    return Status(context.get(cq_context::status));
  }

  World world;
  std::optional<Side> a, b;
};

// 3.2.5.1: status.
TEST_F(JingzhaoSmallCache, ACqInErrorHasItsStatusInItsContext) {
  overrun();
  EXPECT_EQ(status(*a->send_cq), Status::OVERFLOW);
  EXPECT_EQ(status(*a->receive_cq), Status::OK);
}

TEST_F(JingzhaoSmallCache, ACqWithoutMemoryHasItsStatusInItsContext) {
  // The region of the CQ was made after that of the data.
  const auto index = (a->key->key() & ((1u << world.a().hca->options().log_mpts) - 1)) + 1;
  must(world.a().hca->run({.op = command_opcode::HW2SW_MPT, .in_modifier = index}));
  overrun();
  EXPECT_EQ(status(*a->send_cq), Status::WRITE_FAIL);
}

}  // namespace
}  // namespace softhca::jingzhao::test
