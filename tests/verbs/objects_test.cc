// Handles, connections, and the attributes that devices report.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "fabric/allocation_counter.h"
#include "skips.h"
#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

class Objects : public Verbs {
 protected:
  Device& device() { return lab().device(0); }
};
INSTANTIATE_TEST_SUITE_P(Devices, Objects, testing::ValuesIn(all_pairs()), name_of);

// Fails if the skips differ from the list.
TEST_P(Objects, ADeviceLacksWhatTheListSaysAndNothingElse) {
  for (std::size_t i = 0; i != lab().size(); ++i) {
    const auto count = std::ranges::count(kSkips, lab().name(i), &Skip::device);
    const auto& limitations = lab().device(i).attributes().limitations;
    EXPECT_EQ(limitations.size(), static_cast<std::size_t>(count)) << lab().name(i);
    for (const auto& limitation : limitations) {
      EXPECT_TRUE(lacks(limitation.feature));
      const auto refused = lab().device(i).require(limitation.feature);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find(limitation.section), std::string::npos);
    }
  }
}

// Each test checks for itself that it is listed (suite.cc).
TEST(Skips, AreAsManyAsTheListSays) {
  std::size_t skipped = 0;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s != all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    for (int t = 0; t != suite.total_test_count(); ++t) {
      for (const auto& pair : all_pairs()) {
        const auto test = parts_of(*suite.GetTestInfo(t));
        skipped += test.pair == testing::PrintToString(pair) && is_skipped(test, pair);
      }
    }
  }
  EXPECT_EQ(skipped, kSkipped);
}

TEST_P(Objects, ADeviceSaysWhatItIs) {
  const auto& attributes = device().attributes();
  EXPECT_FALSE(attributes.model.empty());
  EXPECT_FALSE(attributes.firmware.empty());
  EXPECT_GE(attributes.max_qps, 127u);
  EXPECT_GE(attributes.max_message, 1u << 23);
  EXPECT_GE(attributes.max_reads, 16u);
  EXPECT_TRUE(must(device().link_is_up()));
  EXPECT_EQ(device().gid(), Gid::from_ipv4(10, 0, 0, 1));
}

TEST_P(Objects, ObjectsInUseCannotBeDestroyed) {
  const bool has_srqs = !lacks(Feature::kSharedReceiveQueues);
  make_sides({.with_srq = has_srqs});
  EXPECT_FALSE(a().pd.destroy());
  EXPECT_FALSE(a().send_cq.destroy());
  if (has_srqs) {
    EXPECT_FALSE(a().srq->destroy());
  }
  must(a().qp.destroy());
  must(a().send_cq.destroy());
  must(a().receive_cq.destroy());
  if (has_srqs) must(a().srq->destroy());
  EXPECT_FALSE(a().pd.destroy()) << "its memory region is there";
  must(a().region.destroy());
  must(a().pd.destroy());
  a_.reset();
}

TEST_P(Objects, HandlesKeepWhatTheyAreMadeOf) {
  std::optional<QueuePair> qp;
  {
    auto pd = must(device().allocate_pd());
    auto cq = must(device().create_cq());
    qp = must(pd.create_qp({.send_cq = cq, .receive_cq = cq}));
  }
  EXPECT_EQ(must(qp->query_state()), QpState::kReset);
  must(qp->destroy());
}

TEST_P(Objects, AQueuePairHasTheAddressThatThereIsWhenItIsConnected) {
  make_sides({});
  must(a().device.set_gid(0, Gid::from_ipv4(10, 0, 0, 77)));
  must(connect(a().qp, b().qp));
  b().receive(1, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 64, 2), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 1, CompletionOpcode::kReceive);
  expect_success(wait(a().send_cq), 2, CompletionOpcode::kSend);
}

TEST_P(Objects, AQueuePairIsMadeOfObjectsOfItsDevice) {
  auto pd = must(lab().device(0).allocate_pd());
  auto own = must(lab().device(0).create_cq());
  auto other = must(lab().device(1).create_cq());
  EXPECT_FALSE(pd.create_qp({.send_cq = own, .receive_cq = other}));
  EXPECT_TRUE(pd.create_qp({.send_cq = own, .receive_cq = own}));
}

// IBTA 11.2.8.2: remote write access without local write access.
TEST_P(Objects, MemoryThatThePeerMayWriteIsWritable) {
  auto pd = must(device().allocate_pd());
  std::array<std::byte, 64> bytes{};
  EXPECT_FALSE(pd.register_memory(bytes, {.local_write = false, .remote_write = true}));
  EXPECT_FALSE(pd.register_memory({}, {}));
  EXPECT_TRUE(pd.register_memory(bytes, {.local_write = false, .remote_read = true}));
}

TEST_P(Objects, TooLargeAQueueIsRefusedInWords) {
  auto pd = must(device().allocate_pd());
  auto cq = must(device().create_cq());
  const auto refused =
      pd.create_qp({.send_cq = cq, .receive_cq = cq, .capacity = {.send_requests = 1u << 20}});
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().message.empty());
}

// Create as many as the device reports. If that is not too many for a test, one more is refused.
TEST_P(Objects, ADeviceWithoutQueuePairsLeftSaysSo) {
  constexpr std::size_t kEnough = 300;
  auto pd = must(device().allocate_pd());
  auto cq = must(device().create_cq());
  std::vector<QueuePair> all;
  std::string refusal;
  while (refusal.empty() && all.size() < kEnough) {
    auto qp = pd.create_qp({.send_cq = cq, .receive_cq = cq, .capacity = {.send_requests = 1}});
    if (qp) {
      all.push_back(std::move(*qp));
    } else {
      refusal = qp.error().message;
    }
  }
  const auto most = std::size_t{device().attributes().max_qps};
  EXPECT_EQ(refusal.empty(), most >= kEnough) << refusal;
  EXPECT_GE(all.size(), std::min(kEnough, most) - 1) << "the document of the RSNIC says 127";
}

TEST_P(Objects, PostingAndPollingAllocateNothing) {
  if (!fabric::kAllocationsCount) GTEST_SKIP() << "allocations are not counted here";
  connect_sides();
  const auto round = [&] {
    b().receive(1, 0, 64);
    (void)a().send(SendOpcode::kSend, 64);
    std::array<Completion, 4> done;
    while (a().send_cq.poll(done) == 0) {
    }
    while (b().receive_cq.poll(done) == 0) {
    }
  };
  for (int i = 0; i != 200; ++i) round();
  const auto before = fabric::allocation_count();
  for (int i = 0; i != 100; ++i) round();
  EXPECT_EQ(fabric::allocation_count(), before);
}

TEST_P(Objects, WaitingEndsInWordsWhenNothingCompletes) {
  auto cq = must(device().create_cq());
  const auto nothing = cq.wait(std::chrono::milliseconds(20));
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().message.find("nothing completes within 20 ms"), std::string::npos);
}

TEST_P(Objects, TwoEndsFindEachOtherOverASocket) {
  make_sides({});
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  const auto end_a = describe(a().qp, {.path_mtu = 4096, .memory = &a().region});
  const auto end_b = describe(b().qp, {.path_mtu = 512, .memory = &b().region});
  must(send_endpoint(fds[0], end_a));
  must(send_endpoint(fds[1], end_b));
  const auto heard_b = must(receive_endpoint(fds[0]));
  EXPECT_EQ(heard_b, end_b);
  must(connect(a().qp, heard_b, {.path_mtu = 4096}));
  must(connect(b().qp, must(receive_endpoint(fds[1])), {.path_mtu = 512}));
  const auto piece = a().region.piece(0, 3000);
  ASSERT_EQ(a().qp.post_send({.opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = heard_b.address,
                              .rkey = heard_b.rkey}),
            PostStatus::kOk);
  expect_success(wait(a().send_cq), 0, CompletionOpcode::kRdmaWrite);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_P(Objects, APeerThatSpeaksSomethingElseIsRefused) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  const std::string words(80, 'x');
  ASSERT_EQ(::send(fds[0], words.data(), words.size(), 0), 80);
  EXPECT_FALSE(receive_endpoint(fds[1]));
  ::close(fds[0]);
  const auto gone = receive_endpoint(fds[1]);
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message.find("has gone"), std::string::npos);
  ::close(fds[1]);
}

TEST_P(Objects, EndsOfDifferentServicesAreNotConnected) {
  make_sides({});
  auto other = must(b().pd.create_qp(
      {.type = QpType::kUd, .send_cq = b().send_cq, .receive_cq = b().receive_cq}));
  EXPECT_FALSE(connect(a().qp, describe(other)));
}

}  // namespace
}  // namespace softhca::driver::verbs::test
