#include "os/file_size.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "os/shared_ring.h"

namespace softhca::os {
namespace {

using testing::HasSubstr;

/// Sets a soft limit for this process. SIGXFSZ would end it.
class FileSizeTest : public ::testing::Test {
 protected:
  FileSizeTest() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{kLimit, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeTest() override {
    ::close(fd_);
    ::setrlimit(RLIMIT_FSIZE, &before_);
  }

  static constexpr rlim_t kLimit = 4096;
  int fd_ = ::memfd_create("test", MFD_CLOEXEC);
  rlimit before_{};
};

TEST_F(FileSizeTest, AFileGrowsAsFarAsTheLimitAndTheErrorNamesIt) {
  EXPECT_TRUE(set_file_size(fd_, kLimit, "a file"));
  const auto above = set_file_size(fd_, kLimit + 1, "a file");
  ASSERT_FALSE(above);
  EXPECT_THAT(above.error().message, HasSubstr("ulimit -f"));
}

TEST_F(FileSizeTest, BytesAreWrittenAsFarAsTheLimit) {
  const std::array<std::byte, 8> bytes{};
  EXPECT_TRUE(write_at(fd_, bytes, kLimit - bytes.size()));
  EXPECT_FALSE(write_at(fd_, bytes, kLimit - bytes.size() + 1));
  EXPECT_EQ(errno, EFBIG);
}

TEST_F(FileSizeTest, ARingAboveTheLimitIsNotMade) {
  const auto ring = SharedRing::create(SharedRing::kCapacityMin);
  ASSERT_FALSE(ring);
  EXPECT_THAT(ring.error().message, HasSubstr("ulimit -f"));
}

TEST_F(FileSizeTest, TheSoftLimitIsRaisedToTheHardOne) {
  raise_file_size_limit();
  EXPECT_TRUE(set_file_size(fd_, kLimit + 1, "a file"));
}

}  // namespace
}  // namespace softhca::os
