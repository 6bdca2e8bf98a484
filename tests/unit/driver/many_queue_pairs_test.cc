// Many concurrent connections between two devices, with all kinds of requests mixed.
#include <cstring>
#include <random>

#include "driver/world.h"

namespace softhca::driver::test {
namespace {

/// A connection with its own slice of the memory of both sides.
struct Link {
  std::unique_ptr<connectx::QueuePair> a;
  std::unique_ptr<connectx::QueuePair> b;
  std::size_t offset;
  std::uint64_t sent = 0;
  std::uint64_t completed = 0;
  std::uint64_t sum = 0;  ///< sum of all atomic operands
};

class ManyQueuePairs : public ::testing::Test {
 protected:
  static constexpr std::size_t kLinks = 200;
  static constexpr std::size_t kSlice = 8192;

  ManyQueuePairs() {
    world_.open();
    const Endpoint::Options options{.memory = kLinks * kSlice, .cq_entries = 32768};
    a_ = std::make_unique<Endpoint>(world_.a(), options);
    b_ = std::make_unique<Endpoint>(world_.b(), options);
    for (std::size_t i = 0; i < kLinks; ++i) links_.push_back(make_link(i));
  }
  Link make_link(std::size_t i) {
    const auto make = [](Endpoint& e) {
      return must(connectx::QueuePair::create(
          *e.pd, {.send_cq = *e.send_cq, .receive_cq = *e.receive_cq, .send = {.requests = 16}}));
    };
    Link link{.a = make(*a_), .b = make(*b_), .offset = i * kSlice};
    const connectx::Connection connection{.psn = static_cast<std::uint32_t>(i), .path_mtu = 1024};
    const auto remote = [&](Endpoint& e, connectx::QueuePair& qp) {
      return connectx::RemoteQueuePair{
          .qpn = qp.qpn(), .psn = connection.psn, .gid = e.node.gid, .mac = e.node.mac};
    };
    must(link.a->connect(remote(*b_, *link.b), connection));
    must(link.b->connect(remote(*a_, *link.a), connection));
    return link;
  }
  PostStatus post(std::size_t i, std::mt19937& random) {
    auto& link = links_[i];
    const auto size = random() % 3000 + 1;
    const bool atomic = random() % 4 == 0;
    const auto piece = a_->piece(link.offset, atomic ? 8 : size);
    const auto status =
        link.a->post_send({.id = i << 32 | link.sent,
                           .opcode = atomic              ? SendOpcode::kFetchAdd
                                     : random() % 2 == 0 ? SendOpcode::kRdmaWrite
                                                         : SendOpcode::kRdmaRead,
                           .pieces = {&piece, 1},
                           .remote_address = b_->address(link.offset + (atomic ? 4096 : 0)),
                           .rkey = b_->key->key(),
                           .swap_or_add = size});
    if (status != PostStatus::kOk) return status;
    ++link.sent;
    if (atomic) link.sum += size;
    return status;
  }
  void collect() {
    std::array<Completion, 64> done;
    while (const auto n = a_->send_cq->poll(done)) {
      for (const auto& completion : std::span(done).first(n)) {
        ASSERT_EQ(completion.status, WorkStatus::kSuccess);
        auto& link = links_.at(completion.id >> 32);
        ASSERT_EQ(completion.id & 0xffffffff, link.completed) << "in order on each connection";
        ++link.completed;
      }
    }
  }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::vector<Link> links_;
};

TEST_F(ManyQueuePairs, EachCompletesItsOwnRequestsInOrder) {
  std::mt19937 random(1);
  std::uint64_t posted = 0;
  while (posted < 20000) {
    if (post(random() % kLinks, random) == PostStatus::kOk) {
      ++posted;
      if (posted % 100 != 0) continue;
    }
    collect();
  }
  ASSERT_TRUE(world_.run_until([&] {
    collect();
    return std::all_of(links_.begin(), links_.end(),
                       [](const Link& link) { return link.completed == link.sent; });
  }));
  for (const auto& link : links_) {
    std::uint64_t sum = 0;
    std::memcpy(&sum, b_->memory.data() + link.offset + 4096, sizeof(sum));
    EXPECT_EQ(sum, link.sum) << "each atomic took effect exactly once";
  }
  EXPECT_EQ(a_->send_cq->strays(), 0u);
}

TEST_F(ManyQueuePairs, NumbersAreGivenBackAndUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    links_.clear();
    for (std::size_t i = 0; i < kLinks; ++i) links_.push_back(make_link(i));
  }
  std::mt19937 random(2);
  for (std::size_t i = 0; i < kLinks; ++i) ASSERT_EQ(post(i, random), PostStatus::kOk);
  ASSERT_TRUE(world_.run_until([&] {
    collect();
    return std::all_of(links_.begin(), links_.end(),
                       [](const Link& link) { return link.completed == link.sent; });
  }));
}

}  // namespace
}  // namespace softhca::driver::test
