// Scatter lists and shared receive queues in host memory (mlx5 driver interface 8.1, 8.5).
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "connectx/qp/qp_receive_queue.h"
#include "connectx/qp/shared_receive_queue.h"
#include "connectx/queue/receive_signature.h"
#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/wqe_fault.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using rdma::Fetch;

constexpr pcie::Iova kBase = 0x100000;
constexpr std::size_t kPage = 4096;

/// Four pages of host memory; the last holds the doorbell record.
class RdmaQueues : public ::testing::Test {
 protected:
  RdmaQueues() {
    EXPECT_TRUE(dma_.map(kBase, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite));
  }
  MappedQueue queue(std::uint64_t size) {
    std::array<std::byte, 8> pas;
    util::store_be64(pas.data(), kBase);
    return *QueueMapper(dma_, translations_, user_memories_, work_)
                .map({.size = size, .pas = pas, .dbr_addr = kBase + 3 * kPage}, "");
  }
  void ring(unsigned dword, std::uint32_t value) {
    util::store_be32(memory_.data() + 3 * kPage + 4 * dword, value);
  }

  alignas(kPage) std::array<std::byte, 4 * kPage> memory_{};
  pcie::DmaSpace dma_;
  util::Budget translations_{100};
  UserMemories user_memories_{translations_, Limits{.log_max_umem = 0}};
  util::WorkBudget work_{1'000'000};
};

void put_segment(std::byte* at, std::uint32_t length, std::uint32_t key, std::uint64_t address) {
  util::store_be32(at, length);
  util::store_be32(at + 4, key);
  util::store_be64(at + 8, address);
}

TEST(RdmaReceiveWqe, ListEndsAtTheMarker) {
  std::array<std::byte, 64> wqe{};
  put_segment(wqe.data(), 100, 7, 0x1000);
  put_segment(wqe.data() + 16, 0, 0x100, 0);
  put_segment(wqe.data() + 32, 5, 7, 0x2000);
  std::vector<rdma::Sge> sges;
  decode_scatter_list(wqe, sges);
  ASSERT_EQ(sges.size(), 1u);
  EXPECT_EQ(sges[0].length, 100u);
  EXPECT_EQ(sges[0].lkey, rdma::MKey(7));
  EXPECT_EQ(sges[0].address, 0x1000u);
}

TEST(RdmaReceiveWqe, ListMayFillTheWholeWqe) {
  std::array<std::byte, 32> wqe{};
  put_segment(wqe.data(), 1, 7, 0);
  put_segment(wqe.data() + 16, 2, 7, 0);
  std::vector<rdma::Sge> sges;
  decode_scatter_list(wqe, sges);
  EXPECT_EQ(sges.size(), 2u);
}

TEST(RdmaReceiveWqe, ByteCountZeroWithAnotherKeyMeansTwoGibibytes) {
  std::array<std::byte, 16> wqe{};
  put_segment(wqe.data(), 0, 0x200, 0);
  std::vector<rdma::Sge> sges;
  decode_scatter_list(wqe, sges);
  ASSERT_EQ(sges.size(), 1u);
  EXPECT_EQ(sges[0].length, 1u << 31);
}

// If decode_scatter_list_fast() succeeds, decode_scatter_list() gives the same piece.
TEST(RdmaReceiveWqe, AListOfOnePieceIsThatPiece) {
  struct Segment {
    std::uint32_t length, key;
  };
  const auto piece_of = [](std::vector<Segment> segments) -> std::optional<std::uint32_t> {
    std::vector<std::byte> wqe(16 * segments.size());
    for (std::size_t i = 0; i != segments.size(); ++i) {
      put_segment(&wqe[16 * i], segments[i].length, segments[i].key, 0x1000 * i);
    }
    rdma::Sge piece{};
    if (!decode_scatter_list_fast(wqe.data(), wqe.size(), piece)) return std::nullopt;
    std::vector<rdma::Sge> sges;
    decode_scatter_list(wqe, sges);
    EXPECT_EQ(sges.size(), 1u);
    EXPECT_EQ(sges[0].address, piece.address);
    EXPECT_EQ(sges[0].lkey, piece.lkey);
    EXPECT_EQ(sges[0].length, piece.length);
    return piece.length;
  };
  EXPECT_EQ(piece_of({{100, 7}}), 100u);
  EXPECT_EQ(piece_of({{100, 7}, {0, 0x100}}), 100u);
  EXPECT_EQ(piece_of({{100, 7}, {0, 0x100}, {5, 7}, {6, 7}}), 100u);
  EXPECT_EQ(piece_of({{100, 7}, {5, 7}}), std::nullopt);
  EXPECT_EQ(piece_of({{100, 7}, {0, 7}}), std::nullopt) << "of 2 GiB";
  EXPECT_EQ(piece_of({{100, 7}, {5, 0x100}}), std::nullopt);
  EXPECT_EQ(piece_of({{0, 0x100}}), std::nullopt);
  EXPECT_EQ(piece_of({{0, 7}}), std::nullopt) << "of 2 GiB";
}

// Two queues have the same WQEs. One is fetched by fetch() alone.
TEST_F(RdmaQueues, FetchFastGivesWhatFetchGivesOrNothing) {
  constexpr std::uint32_t kCount = 8, kStride = 32, kEndOfList = 0x100;
  const hca::WorkRing empty({.log_stride = 5, .log_count = 3});
  util::Struct<spec::connectx::qpc> context;
  std::array<QpReceiveQueue, 2> queues{QpReceiveQueue(empty), QpReceiveQueue(empty)};
  for (auto& one : queues)
    one.set_rules(Qpn(7), QpContext(util::View<spec::connectx::qpc>(context.bytes())));
  std::array<MappedQueue, 2> memories{queue(kCount * kStride), queue(kCount * kStride)};
  BlueFlame blue_flame;
  util::Notes notes("test");
  WqeReader reader(blue_flame, notes, nullptr);
  std::mt19937 random(85);
  std::uint32_t posted = 0;
  unsigned fast = 0;
  for (unsigned round = 0; round != 5'000; ++round) {
    while (posted != queues[1].ring().consumed() + kCount && random() % 3 == 0) {
      auto* const wqe = memory_.data() + posted++ % kCount * kStride;
      const auto length = static_cast<std::uint32_t>(random() % 8);
      put_segment(wqe, length, 7, random());
      put_segment(wqe + 16, length % 2, random() % 4 == 0 ? 9 : kEndOfList, 0x2000);
      ring(0, posted);
    }
    rdma::ReceiveRequest quick, full;
    rdma::ReceivePiece piece{};
    Fetch fetched = Fetch::kRequest;
    const auto before = queues[0].ring().consumed();
    if (queues[0].fetch_fast(memories[0], piece)) {
      ++fast;
      quick.cookie = piece.cookie;
      quick.sges = {piece.sge};
    } else {
      ASSERT_EQ(queues[0].ring().consumed(), before) << round;
      fetched = queues[0].fetch(memories[0], reader, false, quick);
    }
    ASSERT_EQ(fetched, queues[1].fetch(memories[1], reader, false, full)) << round;
    ASSERT_EQ(queues[0].ring().consumed(), queues[1].ring().consumed()) << round;
    if (fetched != Fetch::kRequest) continue;
    ASSERT_EQ(quick.cookie, full.cookie) << round;
    ASSERT_EQ(quick.sges.size(), full.sges.size()) << round;
    for (std::size_t i = 0; i != full.sges.size(); ++i) {
      EXPECT_EQ(quick.sges[i].address, full.sges[i].address);
      EXPECT_EQ(quick.sges[i].length, full.sges[i].length);
      EXPECT_EQ(quick.sges[i].lkey, full.sges[i].lkey);
    }
  }
  EXPECT_GT(fast, 200u);
}

class RdmaSharedReceiveQueue : public RdmaQueues {
 protected:
  static constexpr unsigned kCount = 8;
  static constexpr unsigned kStride = 32;

  explicit RdmaSharedReceiveQueue(bool cyclic = false)
      : srq_(Srqn(5),
             {.log_size = 3, .log_stride = 5, .cyclic = cyclic, .queue = queue(kCount * kStride)}) {
    for (unsigned i = 0; i < kCount; ++i) write(i, (i + 1) % kCount, i + 1);
  }
  void write(unsigned index, unsigned next, std::uint32_t length) {
    auto* wqe = memory_.data() + index * kStride;
    util::store_be32(wqe, next);
    put_segment(wqe + 16, length, 7, 0x4000);
  }
  /// Index of the WQE that was taken; -1 for none.
  int take() {
    request_.reset();
    last_ = srq_.fetch(request_);
    return last_ == Fetch::kRequest ? static_cast<int>(request_.cookie) : -1;
  }

  SharedReceiveQueue srq_;
  rdma::ReceiveRequest request_;
  Fetch last_ = Fetch::kNothing;
};

TEST_F(RdmaSharedReceiveQueue, TakesAsManyAsArePosted) {
  EXPECT_EQ(take(), -1);
  EXPECT_EQ(last_, Fetch::kNothing);
  ring(0, 2);
  EXPECT_EQ(take(), 0);
  ASSERT_EQ(request_.sges.size(), 1u);
  EXPECT_EQ(request_.sges[0].length, 1u);
  EXPECT_EQ(take(), 1);
  EXPECT_EQ(take(), -1);
}

TEST_F(RdmaSharedReceiveQueue, FollowsTheListAsSoftwareHasRewrittenIt) {
  ring(0, 2);
  EXPECT_EQ(take(), 0);
  // Software moves a later WQE forward in the list.
  write(1, 5, 2);
  write(5, 2, 6);
  EXPECT_EQ(take(), 1);
  ring(0, 4);
  EXPECT_EQ(take(), 5);
  EXPECT_EQ(take(), 2);
}

TEST_F(RdmaSharedReceiveQueue, LinkIsReadWhenItsWqeIsTakenNotLater) {
  ring(0, 1);
  EXPECT_EQ(take(), 0);
  // Software has freed WQE 0 and appended it to its list.
  write(0, 7, 1);
  ring(0, 2);
  EXPECT_EQ(take(), 1);
}

TEST_F(RdmaSharedReceiveQueue, IndexPastTheQueueFailsIt) {
  write(0, kCount, 1);
  ring(0, 1);
  EXPECT_EQ(take(), -1);
  EXPECT_EQ(last_, Fetch::kUnreadable);
  EXPECT_TRUE(srq_.failed());
  EXPECT_FALSE(srq_.take_failure().empty());
  EXPECT_TRUE(srq_.take_failure().empty()) << "it is told once";
}

TEST_F(RdmaSharedReceiveQueue, CounterPastTheQueueFailsIt) {
  ring(0, kCount + 1);
  EXPECT_EQ(take(), -1);
  EXPECT_TRUE(srq_.failed());
}

TEST_F(RdmaSharedReceiveQueue, LimitIsReportedOnceWhenFewerAreLeft) {
  ring(0, 4);
  srq_.arm(3);
  EXPECT_FALSE(srq_.take_limit_event()) << "4 are posted";
  EXPECT_EQ(take(), 0);
  EXPECT_FALSE(srq_.take_limit_event()) << "3 are not fewer than 3";
  EXPECT_EQ(take(), 1);
  EXPECT_TRUE(srq_.take_limit_event());
  EXPECT_EQ(srq_.limit(), 0);
  EXPECT_EQ(take(), 2);
  EXPECT_FALSE(srq_.take_limit_event());
}

TEST_F(RdmaSharedReceiveQueue, LimitLooksAtWhatWasPostedMeanwhile) {
  ring(0, 4);
  srq_.arm(3);
  EXPECT_EQ(take(), 0);
  ring(0, 6);
  EXPECT_EQ(take(), 1);
  EXPECT_FALSE(srq_.take_limit_event()) << "4 are left";
}

TEST_F(RdmaSharedReceiveQueue, LimitThatIsReachedAlreadyIsReportedImmediately) {
  ring(0, 2);
  srq_.arm(3);
  EXPECT_TRUE(srq_.take_limit_event());
}

// PRM Table 43: "The signature covers entire WQE as well as the SRQ number and WQE index".
class RdmaSignedSharedQueue : public RdmaSharedReceiveQueue {
 protected:
  SharedReceiveQueue make(bool cyclic, bool bare) {
    return SharedReceiveQueue(Srqn(6), {.log_size = 3,
                                        .log_stride = 5,
                                        .cyclic = cyclic,
                                        .bare = bare,
                                        .wq_signature = true,
                                        .queue = queue(kCount * kStride)});
  }
  void sign(unsigned index, std::uint16_t as) {
    test::sign_receive(std::span(memory_).subspan(index * kStride, kStride), 6, as);
  }
};

TEST_F(RdmaSignedSharedQueue, WqesOfAListAreSignedWithTheirPlace) {
  auto srq = make(false, false);
  write(0, 4, 1);
  sign(0, 0);
  sign(4, 4);
  ring(0, 2);
  for (const unsigned place : {0u, 4u}) {
    request_.reset();
    ASSERT_EQ(srq.fetch(request_), Fetch::kRequest);
    EXPECT_EQ(request_.cookie, place);
    ASSERT_EQ(request_.sges.size(), 1u);
    EXPECT_EQ(request_.sges[0].length, place + 1);
  }
}

TEST_F(RdmaSignedSharedQueue, CyclicWqesAreSignedWithTheirCounter) {
  for (const bool bare : {false, true}) {
    auto srq = make(true, bare);
    for (unsigned i = 0; i != 2 * kCount; ++i) {
      write(i % kCount, 0, i + 1);
      util::store_be32(memory_.data() + i % kCount * kStride + 4, 0);
      sign(i % kCount, static_cast<std::uint16_t>(i));
      ring(0, i + 1);
      request_.reset();
      ASSERT_EQ(srq.fetch(request_), Fetch::kRequest) << i;
      ASSERT_EQ(request_.sges.size(), 1u);
      EXPECT_EQ(request_.sges[0].length, i + 1);
    }
  }
}

TEST_F(RdmaSignedSharedQueue, WrongSignatureIsItsTakersFaultAndTheQueueGoesOn) {
  auto srq = make(false, false);
  sign(1, 1);
  ring(0, 2);
  EXPECT_EQ(srq.fetch(request_), Fetch::kMalformed);
  EXPECT_EQ(request_.cookie, 0u);
  EXPECT_EQ(request_.fault, reason_of(WqeFault::kReceiveSignature));
  request_.reset();
  EXPECT_EQ(srq.fetch(request_), Fetch::kRequest);
  EXPECT_EQ(request_.cookie, 1u);
}

// A cyclic one ---------------------------------------------------------------------------------

class RdmaCyclicReceiveQueue : public RdmaSharedReceiveQueue {
 protected:
  RdmaCyclicReceiveQueue() : RdmaSharedReceiveQueue(true) {
    // Invalid links, which the device must not follow.
    for (unsigned i = 0; i < kCount; ++i) write(i, 0xFFFF, i + 1);
  }
};

TEST_F(RdmaCyclicReceiveQueue, WqesAreTakenInTurnAndCountedBeyondTheEnd) {
  for (int i = 0; i < 3 * static_cast<int>(kCount); ++i) {
    ring(0, static_cast<unsigned>(i) + 1);
    ASSERT_EQ(take(), i) << "UCX compares it with the counter of what it has posted";
    ASSERT_EQ(request_.sges.size(), 1u);
    EXPECT_EQ(request_.sges[0].length, static_cast<unsigned>(i) % kCount + 1);
    EXPECT_EQ(take(), -1);
    EXPECT_EQ(last_, Fetch::kNothing);
  }
}

TEST_F(RdmaCyclicReceiveQueue, CounterHasSixteenBits) {
  for (unsigned i = 0; i < 0x10002; ++i) {
    ring(0, i + 1);
    ASSERT_EQ(take(), static_cast<int>(i & 0xFFFF));
    ASSERT_EQ(request_.sges[0].length, i % kCount + 1);
  }
}

TEST_F(RdmaCyclicReceiveQueue, CounterPastTheQueueFailsIt) {
  ring(0, kCount + 1);
  EXPECT_EQ(take(), -1);
  EXPECT_EQ(last_, Fetch::kUnreadable);
  EXPECT_TRUE(srq_.failed());
}

TEST_F(RdmaCyclicReceiveQueue, LimitCountsWhatIsLeft) {
  ring(0, kCount);
  srq_.arm(3);
  for (unsigned i = 0; i < kCount - 3; ++i) {
    take();
    EXPECT_FALSE(srq_.take_limit_event());
  }
  take();
  EXPECT_TRUE(srq_.take_limit_event());
}

// PRM Table 65: "cyclic receive wqe includes the 16 bytes of ctrl only when wq_signature==1".
TEST_F(RdmaCyclicReceiveQueue, BasicWqesBeginWithTheirList) {
  SharedReceiveQueue srq(Srqn(6), {.log_size = 3,
                                   .log_stride = 5,
                                   .cyclic = true,
                                   .bare = true,
                                   .queue = queue(kCount * kStride)});
  put_segment(memory_.data(), 9, 7, 0x4000);
  put_segment(memory_.data() + 16, 11, 7, 0x5000);
  ring(0, 1);
  ASSERT_EQ(srq.fetch(request_), Fetch::kRequest);
  ASSERT_EQ(request_.sges.size(), 2u);
  EXPECT_EQ(request_.sges[0].length, 9u);
  EXPECT_EQ(request_.sges[1].length, 11u);
}

}  // namespace
}  // namespace softhca::connectx
