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
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("20 KiB of memory are registered, and 16 KiB may")));
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

TEST_F(LockedMemoryOfObjects, QueuesCount) {
  ASSERT_EQ(program_.reopen(false), 0);
  mlx5_ib_create_cq own{};
  own.buf_addr = at(1);
  own.db_addr = at(60);
  own.cqe_size = 64;
  own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  own.uar_page_index = static_cast<std::uint16_t>(program_.uar());
  const auto create = [&] {
    mlx5_ib_create_cq_resp numbers{};
    std::uint32_t last = 0;
    return Call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
        .number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, std::uint32_t{255})
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers)
        .on(program_.context());
  };
  allow(3);
  EXPECT_EQ(create(), ENOMEM);
  allow(4);
  EXPECT_EQ(create(), 0) << "256 entries of 64 bytes";
  EXPECT_EQ(locked(), 4u);
  program_.close();
  EXPECT_EQ(locked(), 0u);
}

}  // namespace
}  // namespace softhca::uverbs
