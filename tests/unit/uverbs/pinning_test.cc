// What may be registered.
#include "uverbs/pinning.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

constexpr std::size_t kPage = 4096;

class Pinning : public testing::Test {
 protected:
  ~Pinning() override { ::munmap(area_, 2 * kPage); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(area_); }
  void protect(int how) { ASSERT_EQ(::mprotect(area_, 2 * kPage, how), 0); }

  std::byte* const area_ = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST_F(Pinning, AsksForTheRightsOfTheProgram) {
  for (const auto& how : {pin, probe}) {
    protect(PROT_READ);
    EXPECT_EQ(how(address(), kPage, false), 0);
    EXPECT_EQ(how(address(), kPage, true), EFAULT);
    protect(PROT_NONE);
    EXPECT_EQ(how(address(), kPage, false), EFAULT);
    protect(PROT_READ | PROT_WRITE);
    EXPECT_EQ(how(address(), 2 * kPage, true), 0);
  }
}

TEST_F(Pinning, FindsAHole) {
  ASSERT_EQ(::munmap(area_ + kPage, kPage), 0);
  for (const auto& how : {pin, probe}) {
    EXPECT_EQ(how(address() + 8, kPage, true), EFAULT);
    EXPECT_EQ(how(address() + 8, kPage - 8, true), 0);
  }
}

TEST_F(Pinning, ChangesNothing) {
  area_[0] = std::byte{7};
  EXPECT_EQ(probe(address(), 2 * kPage, true), 0);
  EXPECT_EQ(area_[0], std::byte{7});
}

TEST_F(Pinning, WritesArePinnedForAllRightsThatWrite) {
  for (const std::uint32_t access : {1U, 2U, 8U, 16U}) EXPECT_TRUE(is_writable(access)) << access;
  for (const std::uint32_t access : {0U, 4U, 64U}) EXPECT_FALSE(is_writable(access)) << access;
}

}  // namespace
}  // namespace softhca::uverbs
