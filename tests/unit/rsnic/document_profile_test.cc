// The profile `document`: the document's object counts, doorbell pages and QP layout. It runs with
// driver/connectx, because the stock driver does not support this profile (docs/rsnic.md).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/connectx/event_queue.h"
#include "driver/world.h"
#include "rsnic/options.h"
#include "spec/connectx/resources.h"

namespace softhca::rsnic {
namespace {

using namespace driver::test;  // World, Endpoint, must()
using driver::PostStatus;
using driver::Sge;
using driver::WorkStatus;
namespace d = driver::connectx;
namespace s = spec::connectx;

class DocumentProfile : public ::testing::Test {
 protected:
  static constexpr std::size_t kSlice = 4096;

  DocumentProfile() { world_.open({.send_queue_alignment = 4096}); }

  util::Result<std::unique_ptr<d::QueuePair>> make_qp(Endpoint& on, unsigned receives) {
    return d::QueuePair::create(*on.pd, {.send_cq = *on.send_cq,
                                         .receive_cq = *on.receive_cq,
                                         .send = {.requests = 4, .pieces = 1},
                                         .receive = {.requests = receives, .pieces = 1}});
  }
  d::RemoteQueuePair remote(Endpoint& on, const d::QueuePair& qp) {
    return {.qpn = qp.qpn(), .psn = 1, .gid = on.node.gid, .mac = on.node.mac};
  }

  World world_{device_options(Profile::kDocument), device_options(Profile::kDocument)};
};

/// The message of a command that fails because its objects are exhausted.
void expect_no_resources(const std::string& message) {
  EXPECT_NE(message.find("NO_RESOURCES"), message.npos) << message;
}

// Table 2-1-1, rows 23 and 24: "up to 127 Connections", "127 RDMA Queue Pairs".
TEST_F(DocumentProfile, Moves127ConnectionsAtOnceAndRefusesTheNext) {
  constexpr std::size_t kQps = 127;
  const Endpoint::Options options{.memory = (kQps + 1) * kSlice, .cq_entries = 1024};
  Endpoint a(world_.a(), options), b(world_.b(), options);
  a.qp.reset();
  b.qp.reset();
  std::vector<std::unique_ptr<d::QueuePair>> from, to;
  for (std::size_t i = 0; i != kQps; ++i) {
    // RQs of zero entries, of part of a page, and of whole pages.
    const unsigned receives = i % 3 == 0 ? 0 : i % 3 == 1 ? 3 : 256;
    from.push_back(must(make_qp(a, receives)));
    to.push_back(must(make_qp(b, 4)));
    must(from[i]->connect(remote(b, *to[i]), {.psn = 1}));
    must(to[i]->connect(remote(a, *from[i]), {.psn = 1}));
  }
  const auto refused = make_qp(a, 4);
  ASSERT_FALSE(refused);
  expect_no_resources(refused.error().message);

  for (std::size_t i = 0; i != kQps; ++i) {
    const auto bytes = pattern(kSlice, static_cast<std::uint32_t>(i));
    std::ranges::copy(bytes, a.bytes(i * kSlice, kSlice).begin());
    const auto to_piece = b.piece(i * kSlice, kSlice / 2);
    ASSERT_EQ(to[i]->post_receive({.id = i, .pieces = {&to_piece, 1}}), PostStatus::kOk);
  }
  for (std::size_t i = 0; i != kQps; ++i) {
    const auto sent = a.piece(i * kSlice, kSlice / 2);
    const auto written = a.piece(i * kSlice + kSlice / 2, kSlice / 2);
    ASSERT_EQ(from[i]->post_send({.id = 2 * i, .pieces = {&sent, 1}}), PostStatus::kOk);
    ASSERT_EQ(from[i]->post_send({.id = 2 * i + 1,
                                  .opcode = driver::SendOpcode::kRdmaWrite,
                                  .pieces = {&written, 1},
                                  .remote_address = b.address(i * kSlice + kSlice / 2),
                                  .rkey = b.key->key()}),
              PostStatus::kOk);
  }
  const auto done = wait(world_, *a.send_cq, 2 * kQps);
  ASSERT_EQ(done.size(), 2 * kQps);
  for (const auto& completion : done) EXPECT_EQ(completion.status, WorkStatus::kSuccess);
  EXPECT_EQ(wait(world_, *b.receive_cq, kQps).size(), kQps);
  for (std::size_t i = 0; i != kQps; ++i) {
    EXPECT_TRUE(std::ranges::equal(a.bytes(i * kSlice, kSlice), b.bytes(i * kSlice, kSlice))) << i;
  }

  // Destroying one QP makes room for one.
  from.pop_back();
  EXPECT_TRUE(make_qp(a, 4));
}

// Chapter 9: 256 CQs.
TEST_F(DocumentProfile, Has256CqsAndRefusesTheNext) {
  std::vector<std::unique_ptr<d::CompletionQueue>> made;
  for (;;) {
    auto cq = d::CompletionQueue::create(*world_.a().hca, {.entries = 1});
    if (!cq) {
      expect_no_resources(cq.error().message);
      break;
    }
    made.push_back(std::move(*cq));
  }
  EXPECT_EQ(made.size(), 256u);
}

// Chapter 9: 16 EQs, two of them held by the driver.
TEST_F(DocumentProfile, Has16EqsAndRefusesTheNext) {
  auto& hca = *world_.a().hca;
  std::vector<std::unique_ptr<d::EventQueue>> made;
  for (;;) {
    auto eq = d::EventQueue::create(hca.host(), hca.commands(), {.events = {}, .uar = hca.uar()});
    if (!eq) {
      expect_no_resources(eq.error().message);
      break;
    }
    made.push_back(std::move(*eq));
  }
  EXPECT_EQ(made.size() + 2, 16u);
}

// Figure 9-4: 512 MKeys.
TEST_F(DocumentProfile, Has512MKeysAndRefusesTheNext) {
  const auto pd = must(d::ProtectionDomain::create(*world_.a().hca));
  std::vector<std::byte> memory(64);
  std::vector<std::unique_ptr<d::MemoryKey>> made;
  for (;;) {
    auto key = d::MemoryKey::register_memory(*pd, memory, {});
    if (!key) {
      expect_no_resources(key.error().message);
      break;
    }
    made.push_back(std::move(*key));
  }
  EXPECT_EQ(made.size(), 512u);
}

// Table 4-15: "User Address Register (Allocated from Idx 0x0 - 0x7)". The driver holds the first.
TEST_F(DocumentProfile, AllocatesUars0To7AndRefusesTheNext) {
  auto& hca = *world_.a().hca;
  EXPECT_EQ(hca.uar(), 0u);
  const d::Request<s::alloc_uar_in> in(s::command_opcode::ALLOC_UAR);
  for (std::uint32_t expected = 1; expected != 8; ++expected) {
    const auto out = must(hca.commands().execute<s::alloc_uar_out>(in));
    EXPECT_EQ(out.get(s::alloc_uar_out::uar), expected);
  }
  const auto refused = hca.commands().execute<s::alloc_uar_out>(in);
  ASSERT_FALSE(refused);
  expect_no_resources(refused.error().message);
}

// 7.6: "If there is Receive Queue Count, the next 4k alignment is the Send Queue."
TEST_F(DocumentProfile, FindsNothingInASendQueueThatFollowsDirectly) {
  World other(device_options(Profile::kDocument), device_options(Profile::kDocument));
  other.open({.send_queue_alignment = 64});
  Endpoint a(other.a(), {.receive = {.requests = 16, .pieces = 4}}), b(other.b());
  connect(a, b);
  const auto piece = a.piece(0, 8);
  ASSERT_EQ(a.qp->post_send({.id = 1,
                             .opcode = driver::SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(0),
                             .rkey = b.key->key()}),
            PostStatus::kOk);
  const auto done = wait(other, *a.send_cq);
  EXPECT_FALSE(!done.empty() && done[0].status == WorkStatus::kSuccess);
}

// Table 5-3-1 and 7.8.3: the segment and the doorbell pages share a BAR. In this profile they also
// share pages.
TEST_F(DocumentProfile, KeepsTheInitializationSegmentUnderTheDoorbellPages) {
  auto& host = world_.a().hca->host();
  std::array<std::byte, 4> word{};
  host.read_bar(0, 0, word);
  EXPECT_EQ(util::load_be32(word.data()), 22u << 16 | 14u);
  // The registers of page 0 use offsets that the segment leaves free, so commands still work.
  const std::array<std::byte, 8> ring{};
  for (const auto at : {0x20u, 0x40u, 0x48u, 0x800u, 0xC00u}) host.write_bar(0, at, ring);
  EXPECT_TRUE(world_.a().hca->link_is_up());
}

}  // namespace
}  // namespace softhca::rsnic
