// CQs of a program (kernel interface 4): their memory, their channel, their size.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "uverbs/abi.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsCompletionQueue : public testing::Test {
 protected:
  Errno create(const Program::CqOptions& options) {
    return program_.create_cq(page_, options, handle_);
  }

  Program program_;
  std::uint32_t page_ = program_.uar();
  std::uint32_t handle_ = 0;
};

TEST_F(UverbsCompletionQueue, ACqHasThePowerOfTwoThatHoldsOneMore) {
  std::uint32_t last = 0;
  EXPECT_EQ(create({.entries = 64, .last = &last}), 0);
  EXPECT_EQ(last, 127u);
  ib_uverbs_destroy_cq_resp destroyed{};
  EXPECT_EQ(Call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
                .number(UVERBS_ATTR_DESTROY_CQ_HANDLE, handle_)
                .out(UVERBS_ATTR_DESTROY_CQ_RESP, destroyed)
                .on(program_.context()),
            0);
  EXPECT_EQ(destroyed.comp_events_reported, 0u);
}

TEST_F(UverbsCompletionQueue, ACqWithAChannelIsNotArmedAtFirst) {
  const auto* const arm =
      reinterpret_cast<const std::uint32_t*>(program_.memory() + Program::CqOptions().record) + 1;
  ASSERT_EQ(create({}), 0);
  EXPECT_EQ(*arm, 0u) << "without a channel";
  ib_uverbs_create_comp_channel_resp channel{};
  ASSERT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                          std::uint64_t{0}, channel),
            0);
  ASSERT_EQ(create({.channel = channel.fd}), 0);
  EXPECT_EQ(*arm, 0xffffffffu) << "rule A1";
}

TEST_F(UverbsCompletionQueue, ACqOutsideOfTheMemoryOrOfAnotherPageIsRefused) {
  EXPECT_EQ(create({.begin = 8}), EINVAL) << "no multiple of 64";
  EXPECT_EQ(create({.address = 4096}), EFAULT);
  EXPECT_EQ(create({.address = ~std::uint64_t{4095}}), EFAULT);
  EXPECT_EQ(program_.create_cq(page_ + 1, {}, handle_), EINVAL);
  EXPECT_EQ(create({.entries = 0}), EINVAL);
  EXPECT_EQ(create({.entries = 1u << 31}), EINVAL);
}

// Memory of the program's own allocator (ibv_alloc_parent_domain) may begin anywhere.
TEST_F(UverbsCompletionQueue, ACqMayBeginInsideOfAPage) {
  EXPECT_EQ(create({.begin = 64}), 0);
  EXPECT_EQ(create({.begin = 8192 + 32}), EINVAL);
}

// ib_umem_get() of Linux looks at each page that a queue touches.
TEST_F(UverbsCompletionQueue, ACqThatEndsOutsideOfTheMemoryIsRefused) {
  constexpr std::size_t kPages = 2 * kPage;
  void* const pages =
      ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + kPage, kPage, PROT_NONE), 0);
  const auto begin = reinterpret_cast<std::uint64_t>(pages) + 64;
  EXPECT_EQ(create({.address = begin}), EFAULT) << "64 bytes are in the second page";
  EXPECT_EQ(create({.entries = 31, .address = begin}), 0);
  program_.close();
  ::munmap(pages, kPages);
}

}  // namespace
}  // namespace softhca::uverbs
