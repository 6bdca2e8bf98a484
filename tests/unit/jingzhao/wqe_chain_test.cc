// The description of the following WQE in a doorbell and in a next unit (JingZhao 3.1.2, 3.4.1).
#include <gtest/gtest.h>

#include "jingzhao/spoiler.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using driver::SendRequest;
using spec::jingzhao::next_unit;
using spec::jingzhao::uar_page;
using spec::jingzhao::wqe_opcode;

class JingzhaoChain : public testing::Test {
 protected:
  JingzhaoChain() : world({.make_host = Spoiler::make()}) {
    world.open();
    a.emplace(world.a());
    b.emplace(world.b());
    connect(*a, *b);
  }
  SendRequest request(SendOpcode opcode, const Sge& piece, std::uint64_t id = 1) const {
    return {.id = id,
            .opcode = opcode,
            .pieces = {&piece, 1},
            .remote_address = b->address(0x4000),
            .rkey = b->key->key()};
  }
  /// Makes the next doorbell name another opcode.
  void ring_as(wqe_opcode opcode) {
    Spoiler::of(world.a()).doorbell = [this, opcode](std::span<std::byte, 8> doorbell) {
      doorbell[0] &= ~static_cast<std::byte>(uar_page::opcode.kMax);
      doorbell[0] |= static_cast<std::byte>(opcode);
      Spoiler::of(world.a()).doorbell = nullptr;
    };
  }
  World world;
  std::optional<Side> a;
  std::optional<Side> b;
};

TEST_F(JingzhaoChain, ANopMovesNothingAndHasItsCqe) {
  fill(a->bytes(0, 100), 1);
  const auto piece = a->piece(0, 100);
  ring_as(wqe_opcode::NOP);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece, 5)), PostStatus::kOk);
  expect_success(wait(world, *a->send_cq), 5, CompletionOpcode::kOther);
  EXPECT_FALSE(same(a->bytes(0, 100), b->bytes(0x4000, 100)));
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece, 6)), PostStatus::kOk);
  expect_success(wait(world, *a->send_cq), 6, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(same(a->bytes(0, 100), b->bytes(0x4000, 100)));
}

TEST_F(JingzhaoChain, AnOpcodeThatThereIsNotIsAQpOperationError) {
  const auto piece = a->piece(0, 100);
  ring_as(wqe_opcode::BIND_MW);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece, 5)), PostStatus::kOk);
  expect_error(wait(world, *a->send_cq), 5, WorkStatus::kLocalQpOperation);
}

// The doorbell holds the fence of the first WQE; each later fence is in the preceding WQE.
TEST_F(JingzhaoChain, AFencedRequestWaitsForTheReadBeforeIt) {
  const auto read_piece = a->piece(0x1000, 100), send_piece = a->piece(0, 10);
  for (const bool one_chain : {false, true}) {
    for (const bool fenced : {false, true}) {
      b->receive(9, 0x2000, 100);
      std::array requests{request(SendOpcode::kRdmaRead, read_piece, 1),
                          request(SendOpcode::kSend, send_piece, 2)};
      requests[1].fence = fenced;
      const auto& lost = world.add_fault("port=jingzhao1,opcode=read-response,nth=1,do=lose");
      auto status = PostStatus::kOk;
      if (one_chain) {
        ASSERT_EQ(a->qp->post_send(requests, status), 2u);
      } else {
        for (const auto& one : requests) ASSERT_EQ(a->qp->post_send(one), PostStatus::kOk);
      }
      world.advance(std::chrono::milliseconds(5));  // less than the retransmission timeout
      std::array<Completion, 2> found;
      EXPECT_EQ(b->receive_cq->poll(found), fenced ? 0u : 1u) << one_chain << fenced;
      EXPECT_EQ(lost.fired, 1u);
      EXPECT_EQ(wait(world, *a->send_cq, 2).size(), 2u);
      if (fenced) {
        EXPECT_EQ(wait(world, *b->receive_cq).size(), 1u);
      }
    }
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
