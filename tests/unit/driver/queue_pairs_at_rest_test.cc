// Memory of very many connected queue pairs: what they keep while idle and leave when destroyed,
// and that they allocate nothing to work in turn.
#include <array>

#include "driver/world.h"
#include "fabric/allocation_counter.h"

namespace softhca::driver::test {
namespace {

using fabric::allocated_bytes;
using fabric::allocation_count;

constexpr std::size_t kBytesMax = 4096;
constexpr unsigned kBurst = 20;
/// Memory that a function keeps of destroyed queue pairs: rings that wait to be lent, of requests
/// and of answers, 4,096 entries of each (src/rdma/README.md), and the capacity of its tables.
constexpr std::ptrdiff_t kLeftMax = 2 << 20;

class QueuePairsAtRest : public ::testing::Test {
 protected:
  void connect_links(std::size_t count) {
    if (a_ == nullptr) {
      world_.open();
      a_ = std::make_unique<Endpoint>(world_.a());
      b_ = std::make_unique<Endpoint>(world_.b());
      world_.heap = allocated_bytes;
    }
    for (std::size_t i = 0; i != count; ++i) {
      const auto make = [](Endpoint& e) {
        return must(connectx::QueuePair::create(
            *e.pd, {.send_cq = *e.send_cq,
                    .receive_cq = *e.receive_cq,
                    .send = {.requests = 32, .pieces = 1, .inline_size = 8},
                    .receive = {.requests = 1, .pieces = 1}}));
      };
      auto& link = links_.emplace_back(Link{make(*a_), make(*b_)});
      const auto remote = [](Endpoint& e, connectx::QueuePair& qp) {
        return connectx::RemoteQueuePair{
            .qpn = qp.qpn(), .psn = 0, .gid = e.node.gid, .mac = e.node.mac};
      };
      must(link.a->connect(remote(*b_, *link.b), {}));
      must(link.b->connect(remote(*a_, *link.a), {}));
    }
  }
  void post(std::size_t link, SendOpcode opcode, bool signaled) {
    const auto piece = a_->piece(0, 8);
    ASSERT_EQ(links_[link].a->post_send({.opcode = opcode,
                                         .pieces = {&piece, 1},
                                         .remote_address = b_->address(),
                                         .rkey = b_->key->key(),
                                         .signaled = signaled}),
              PostStatus::kOk);
  }
  /// Polls until one more completion arrives.
  void complete() {
    std::array<Completion, 1> done;
    while (a_->send_cq->poll(done) == 0) {
    }
    EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
  }
  /// Posts on all links concurrently, then waits for each.
  void burst(SendOpcode opcode) {
    for (std::size_t link = 0; link != links_.size(); ++link) {
      for (unsigned i = 0; i != kBurst; ++i) post(link, opcode, false);
    }
    one_each(opcode);
  }
  /// Posts and completes one link after the other.
  void one_each(SendOpcode opcode) {
    for (std::size_t link = 0; link != links_.size(); ++link) {
      post(link, opcode, true);
      complete();
    }
  }
  void work_in_turn(SendOpcode opcode) {
    for (unsigned i = 0; i != 3; ++i) one_each(opcode);
    burst(opcode);
  }
  /// Halved, because both ends take device memory.
  std::size_t bytes_each() const {
    return static_cast<std::size_t>(world_.device_heap()) / (2 * links_.size());
  }

  struct Link {
    std::unique_ptr<connectx::QueuePair> a;
    std::unique_ptr<connectx::QueuePair> b;
  };
  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::vector<Link> links_;
};

TEST_F(QueuePairsAtRest, EachHasAtMost4KiBOfDeviceMemory) {
  if (!fabric::kAllocationsCount) GTEST_SKIP() << "allocations are not counted here";
  connect_links(1000);
  EXPECT_GT(bytes_each(), 500u) << "counted at all";
  EXPECT_LE(bytes_each(), kBytesMax) << "connected";
  one_each(SendOpcode::kRdmaWrite);
  EXPECT_LE(bytes_each(), kBytesMax) << "a message later";
  burst(SendOpcode::kRdmaWrite);
  EXPECT_LE(bytes_each(), kBytesMax) << "after all were busy at the same time";
  burst(SendOpcode::kRdmaRead);
  burst(SendOpcode::kFetchAdd);
  EXPECT_LE(bytes_each(), kBytesMax) << "after READs and atomics";
}

TEST_F(QueuePairsAtRest, WorkingInTurnAllocatesNothing) {
  if (!fabric::kAllocationsCount) GTEST_SKIP() << "allocations are not counted here";
  connect_links(60);
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead, SendOpcode::kFetchAdd}) {
    // Warm up until every entry of every ring has been used.
    for (unsigned i = 0; i != 16; ++i) work_in_turn(opcode);
    const auto before = allocation_count();
    work_in_turn(opcode);
    EXPECT_EQ(allocation_count(), before);
  }
}

TEST_F(QueuePairsAtRest, ThoseThatAreDestroyedLeaveABoundedCache) {
  if (!fabric::kAllocationsCount) GTEST_SKIP() << "allocations are not counted here";
  const auto live = [this] {
    connect_links(500);
    for (const auto opcode :
         {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead, SendOpcode::kFetchAdd}) {
      burst(opcode);
    }
    links_.clear();
    return world_.device_heap();
  };
  // One function keeps requests and the other answers: both together keep as much as one that does
  // both.
  const auto left = live();
  EXPECT_LE(left, kLeftMax);
  for (int i = 0; i != 5; ++i) EXPECT_LE(live(), left + (64 << 10)) << "more of them leave no more";
}

}  // namespace
}  // namespace softhca::driver::test
