// MRs of a program (kernel interface 4): their memory and rights, and what becomes of them when
// either changes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <optional>

#include "spec/connectx/mkey.h"
#include "uverbs/abi.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsMemoryRegion : public testing::Test {
 protected:
  struct Region {
    std::uint32_t lkey = 0, rkey = 0;
    std::uint64_t length = 0, iova = 1;
  };
  Region query(std::uint32_t handle) {
    Region region;
    EXPECT_EQ(Call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                  .number(UVERBS_ATTR_QUERY_MR_HANDLE, handle)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, region.lkey)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, region.rkey)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, region.length)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, region.iova)
                  .on(program_.context()),
              0);
    return region;
  }

  Program program_;
};

/// True if the device allows writes by this key.
bool takes_writes(Program& program, std::uint32_t key) {
  namespace spec = softhca::spec::connectx;
  driver::connectx::Request<spec::query_mkey_in> in(spec::command_opcode::QUERY_MKEY);
  in.set(spec::query_mkey_in::mkey_index, key >> 8);
  const auto out = program.device().commands().execute<spec::query_mkey_out>(in);
  EXPECT_TRUE(out);
  return out && out->get(spec::query_mkey_out::mkey_context).get(spec::mkey_context::rw) != 0;
}

TEST_F(UverbsMemoryRegion, MemoryThatIsNotThereOrMayNotBeWrittenIsRefused) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  void* const gone =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(gone, 8192);
  const auto address = reinterpret_cast<std::uint64_t>(gone);
  EXPECT_EQ(program_.reg_mr(pd, address, 8192, kLocalWrite, mr), EFAULT);
  EXPECT_EQ(program_.reg_mr(pd, program_.memory(), 100, kRemoteWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, ~std::uint64_t{0} - 10, 100, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, std::uint64_t{1} << 50, 100, kLocalWrite, mr), EFAULT);
  EXPECT_EQ(program_.reg_mr(pd, program_.memory(), 0, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd + 1, program_.memory(), 100, kLocalWrite, mr), ENOENT);
}

// Implicit on-demand paging: one key covers all memory.
TEST_F(UverbsMemoryRegion, AllMemoryMayBeRegisteredIfItIsPagedOnDemand) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  EXPECT_EQ(program_.reg_mr(pd, 0, UINT64_MAX, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, 4096, UINT64_MAX, kLocalWrite | kOnDemand, mr), EOVERFLOW);
  ASSERT_EQ(program_.reg_mr(pd, 0, UINT64_MAX, kLocalWrite | kOnDemand, mr), 0);
  const auto all = query(mr.mr_handle);
  EXPECT_EQ(all.iova, 0u);
  EXPECT_EQ(all.length, std::uint64_t{1} << 47);
}

// As in Linux: peers keep using the key that they have.
TEST_F(UverbsMemoryRegion, ReregisteringChangesAKeyInPlace) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 100, kLocalWrite, mr), 0);
  struct {
    std::uint64_t response = 0;
    std::uint32_t handle, flags;
    std::uint64_t start, length, hca_va;
    std::uint32_t pd, access;
  } in{.handle = mr.mr_handle,
       .flags = 4,
       .start = 0,
       .length = 0,
       .hca_va = 0,
       .pd = 0,
       .access = kLocalWrite | kRemoteWrite};
  std::array<std::uint32_t, 2> keys{};
  EXPECT_FALSE(takes_writes(program_, mr.lkey));
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  EXPECT_TRUE(takes_writes(program_, keys[0]));
  in.access = kLocalWrite;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  EXPECT_FALSE(takes_writes(program_, keys[0]));
  in.flags = 2;  // changes the PD
  in.pd = program_.pd();
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  in.flags = 1;
  in.start = in.hca_va = program_.memory() + 8192;
  in.length = 4096;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  in.flags = 1;  // to unmapped memory
  in.start = in.hca_va = 4096 * 3;
  in.length = 4096;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), EFAULT);
  EXPECT_EQ(program_.destroy_mr(mr.mr_handle), 0);
}

// ib_umem_check_rereg(): pages pinned for reading are not pinned again for writing.
TEST_F(UverbsMemoryRegion, RightsToWriteWantPagesThatWerePinnedSo) {
  const auto pd = program_.pd();
  const auto change_rights = [&](std::uint32_t handle, std::uint32_t access) {
    ib_uverbs_rereg_mr in{};
    in.mr_handle = handle;
    in.flags = 4;  // IB_MR_REREG_ACCESS
    in.access_flags = access;
    ib_uverbs_rereg_mr_resp out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, out);
  };
  ib_uverbs_reg_mr_resp read, write;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, 0, read), 0);
  EXPECT_EQ(change_rights(read.mr_handle, kLocalWrite), EACCES);
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, write), 0);
  EXPECT_EQ(change_rights(write.mr_handle, 0), 0);
  EXPECT_EQ(change_rights(write.mr_handle, kLocalWrite), 0);
}

TEST_F(UverbsMemoryRegion, TheAccessOfARegionIsKnown) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, mr), 0);
  EXPECT_EQ(program_.context().region_access(mr.mr_handle), kLocalWrite);
  EXPECT_EQ(program_.context().region_access(pd), std::nullopt);
}

// On-demand paging exists for memory that comes and goes.
TEST_F(UverbsMemoryRegion, AKeyOnDemandOutlivesItsMemory) {
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(program_.pd(), program_.memory(), 4096, kLocalWrite | kOnDemand, mr),
            0);
  program_.context().lose_memory(program_.memory(), false);
  EXPECT_EQ(query(mr.mr_handle).lkey, mr.lkey);
}

TEST_F(UverbsMemoryRegion, MemoryThatGoesTakesItsKeyAndNoOther) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp first, second;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, first), 0);
  ASSERT_EQ(program_.reg_mr(pd, program_.memory() + 4096, 4096, kLocalWrite, second), 0);
  program_.context().lose_memory(program_.memory(), false);
  EXPECT_EQ(query(first.mr_handle).lkey, 0u);
  EXPECT_EQ(query(second.mr_handle).lkey, second.lkey);
  EXPECT_EQ(program_.destroy_mr(first.mr_handle), 0);
}

}  // namespace
}  // namespace softhca::uverbs
