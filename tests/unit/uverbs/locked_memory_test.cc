// Memory that counts against the limit of locked memory.
#include "uverbs/locked_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "util/log.h"
#include "uverbs/abi.h"
#include "uverbs/program.h"
#include "uverbs/raw_packet_program.h"

namespace softhca::uverbs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LockedMemoryLimit : public testing::Test {
 protected:
  LockedMemoryLimit() {
    util::set_log_sink([this](auto, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LockedMemoryLimit() override { util::set_log_sink(nullptr); }
  LockedMemory::Limit limit_{.bytes = 4 * kPage};
  std::vector<std::string> lines_;
};

// ib_umem_get
TEST_F(LockedMemoryLimit, RefusesWhatIsBeyond) {
  LockedMemory memory(LockedMemory::Beyond::kRefusal, [this] { return limit_; });
  EXPECT_EQ(memory.add(3), 0);
  EXPECT_EQ(memory.add(2), ENOMEM);
  EXPECT_EQ(memory.add(UINT64_MAX), ENOMEM);
  EXPECT_EQ(memory.add(1), 0);
  memory.remove(3);
  EXPECT_EQ(memory.pages(), 1u);
  limit_.bytes = 2 * kPage - 1;
  EXPECT_EQ(memory.add(1), ENOMEM) << "a part of a page";
  limit_.bytes = 0;
  EXPECT_EQ(memory.add(1), EPERM) << "can_do_mlock()";
  limit_.binds = false;
  EXPECT_EQ(memory.add(9), 0);
  EXPECT_EQ(memory.pages(), 10u);
  EXPECT_THAT(lines_,
              ElementsAre(HasSubstr("20 KiB of memory are registered, but only 16 KiB may")));
}

TEST_F(LockedMemoryLimit, WarnsOnce) {
  LockedMemory memory(LockedMemory::Beyond::kWarning, [this] { return limit_; });
  EXPECT_EQ(memory.add(4), 0);
  EXPECT_THAT(lines_, ElementsAre());
  for (const auto pages : {5u, 6u}) EXPECT_EQ(memory.add(pages), 0);
  EXPECT_EQ(memory.pages(), 15u);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("ulimit -l unlimited")));
}

class LockedMemoryOfObjects : public testing::Test {
 protected:
  std::uint64_t at(std::uint64_t page) const { return program_.memory() + page * kPage; }
  std::uint64_t locked() { return program_.locked().pages(); }
  void allow(std::uint64_t pages) { program_.limit_locked({.bytes = pages * kPage}); }
  Errno destroy(std::uint32_t handle) {
    return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
        .number(UVERBS_ATTR_DESTROY_MR_HANDLE, handle)
        .on(program_.context());
  }
  Errno move(std::uint32_t handle, std::uint64_t address, std::uint64_t size) {
    ib_uverbs_rereg_mr in{};
    in.mr_handle = handle;
    in.flags = 1;  // IB_MR_REREG_TRANS
    in.start = in.hca_va = address;
    in.length = size;
    std::array<std::uint32_t, 2> keys{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys);
  }

  /// An RC QP of 64 receives and 128 send blocks, from page 8 on.
  Errno create_qp(std::uint32_t page, std::uint32_t pd, std::uint32_t cq) {
    mlx5_ib_create_qp own{};
    own.buf_addr = at(8);
    own.db_addr = at(61);
    own.sq_wqe_count = 128;
    own.rq_wqe_count = 64;
    own.rq_wqe_shift = 6;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
    own.bfreg_index = page;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    caps.max_recv_wr = own.rq_wqe_count;
    std::uint32_t number = 0;
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
        .number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_RC})
        .in(UVERBS_ATTR_CREATE_QP_FLAGS, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer)
        .on(program_.context());
  }

  Program program_;
};

TEST_F(LockedMemoryOfObjects, RegionsCountTheirPagesUntilTheyEnd) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp region{}, other{};
  allow(3);
  ASSERT_EQ(program_.reg_mr(pd, at(1) + 8, kPage, kLocalWrite, region), 0);
  EXPECT_EQ(locked(), 2u) << "parts of two pages";
  EXPECT_EQ(program_.reg_mr(pd, at(4), 2 * kPage, kLocalWrite, other), ENOMEM);
  EXPECT_EQ(program_.reg_mr(pd, at(4), 9 * kPage, kLocalWrite | kOnDemand, other), 0);
  EXPECT_EQ(locked(), 2u) << "memory on demand is not locked";
  EXPECT_EQ(destroy(region.mr_handle), 0);
  EXPECT_EQ(locked(), 0u);
}

TEST_F(LockedMemoryOfObjects, ARefusedRegionCountsNothing) {
  ib_uverbs_reg_mr_resp region{};
  EXPECT_EQ(program_.reg_mr(program_.pd(), 8 * kPage, kPage, kLocalWrite, region), EFAULT);
  EXPECT_EQ(locked(), 0u);
}

// mlx5_ib has the new pages before it lets the old ones go.
TEST_F(LockedMemoryOfObjects, ARegionThatMovesCountsTwiceMeanwhile) {
  ib_uverbs_reg_mr_resp region{};
  allow(4);
  ASSERT_EQ(program_.reg_mr(program_.pd(), at(1), 2 * kPage, kLocalWrite, region), 0);
  EXPECT_EQ(move(region.mr_handle, at(8), 3 * kPage), ENOMEM);
  EXPECT_EQ(locked(), 2u);
  EXPECT_EQ(move(region.mr_handle, at(8), kPage), 0);
  EXPECT_EQ(locked(), 1u);
}

TEST_F(LockedMemoryOfObjects, CompletionQueuesCount) {
  ASSERT_EQ(program_.reopen(false), 0);
  const auto page = program_.uar();
  std::uint32_t cq = 0;
  allow(3);
  EXPECT_EQ(program_.create_cq(page, {.entries = 255}, cq), ENOMEM);
  allow(4);
  EXPECT_EQ(program_.create_cq(page, {.entries = 255}, cq), 0) << "256 entries of 64 bytes";
  EXPECT_EQ(locked(), 4u);
  program_.close();
  EXPECT_EQ(locked(), 0u);
}

TEST_F(LockedMemoryOfObjects, SharedReceiveQueuesCount) {
  ASSERT_EQ(program_.reopen(false), 0);
  const auto pd = program_.pd();
  std::uint32_t srq = 0;
  allow(1);
  EXPECT_EQ(program_.create_srq(pd, {.sges = 31}, srq), ENOMEM);
  allow(2);
  EXPECT_EQ(program_.create_srq(pd, {.sges = 31}, srq), 0) << "16 WQEs of 512 bytes";
  EXPECT_EQ(locked(), 2u);
  program_.close();
  EXPECT_EQ(locked(), 0u);
}

TEST_F(LockedMemoryOfObjects, QueuePairsCount) {
  ASSERT_EQ(program_.reopen(false), 0);
  const auto cq = program_.create_cq(program_.uar());
  const auto page = program_.uar();
  const auto pd = program_.pd();
  allow(3);
  EXPECT_EQ(create_qp(page, pd, cq), ENOMEM) << "the CQ has a page already";
  allow(4);
  EXPECT_EQ(create_qp(page, pd, cq), 0) << "64 receives of 64 bytes, 128 blocks of 64 bytes";
  EXPECT_EQ(locked(), 4u);
  program_.close();
  EXPECT_EQ(locked(), 0u);
}

/// The objects of programs that use the device's own interface; the CQ has a page.
class LockedMemoryOfRawQueues : public UverbsRawPacket {
 protected:
  std::uint64_t locked() { return program_.locked().pages(); }
  void allow(std::uint64_t pages) { program_.limit_locked({.bytes = pages * kPage}); }
};

TEST_F(LockedMemoryOfRawQueues, WorkQueuesCount) {
  std::uint32_t wq = 0;
  allow(2);
  EXPECT_EQ(program_.create_wq(pd_, cq_, {.entries = 512}, wq), ENOMEM);
  allow(3);
  EXPECT_EQ(program_.create_wq(pd_, cq_, {.entries = 512}, wq), 0) << "512 WQEs of 16 bytes";
  EXPECT_EQ(locked(), 3u);
  program_.close();
  EXPECT_EQ(locked(), 0u);
}

TEST_F(LockedMemoryOfRawQueues, BothQueuesOfARawPacketQpCount) {
  for (const auto pages : {1, 2}) {
    allow(pages);
    EXPECT_EQ(create_qp(16, 16).wrong, ENOMEM) << pages;
    EXPECT_EQ(locked(), 1u);
  }
  allow(3);
  const auto qp = create_qp(16, 16);
  EXPECT_EQ(qp.wrong, 0);
  EXPECT_EQ(locked(), 3u);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(locked(), 1u);
}

TEST_F(LockedMemoryOfRawQueues, MemoryOfDevxCounts) {
  allow(3);
  EXPECT_EQ(program_.reg_umem(program_.memory() + 16 * kPage + 8, 2 * kPage).wrong, ENOMEM)
      << "parts of three pages";
  allow(4);
  const auto umem = program_.reg_umem(program_.memory() + 16 * kPage + 8, 2 * kPage);
  EXPECT_EQ(umem.wrong, 0);
  EXPECT_EQ(locked(), 4u);
  EXPECT_EQ(program_.dereg_umem(umem.handle), 0);
  EXPECT_EQ(locked(), 1u);
}

}  // namespace
}  // namespace softhca::uverbs
