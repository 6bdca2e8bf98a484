// The directory of a run, which another user may have replaced.
#include "door/tree/own_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "door/card/run_counters.h"
#include "os/unique_fd.h"

namespace softhca::door {
namespace {

using os::UniqueFd;

class OwnDirectory : public testing::Test {
 protected:
  OwnDirectory() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
  }
  ~OwnDirectory() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(OwnDirectory, IsOpened) { EXPECT_TRUE(UniqueFd(open_own_directory(directory_.c_str()))); }

TEST_F(OwnDirectory, ADirectoryOfAnotherUserIsNotOpened) {
  auto others = directory_;
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(others.c_str(), 65534, 65534), 0);
  } else {
    others = "/";
  }
  errno = 0;
  EXPECT_EQ(open_own_directory(others.c_str()), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(OwnDirectory, OneBehindALinkIsNotOpened) {
  const auto link = directory_ + "/link";
  ASSERT_EQ(::symlink(directory_.c_str(), link.c_str()), 0);
  EXPECT_EQ(open_own_directory(link.c_str()), -1);
}

TEST_F(OwnDirectory, AMissingDirectoryHasAnotherErrnoThanAForeignOne) {
  errno = 0;
  EXPECT_EQ(open_own_directory((directory_ + "/gone").c_str()), -1);
  EXPECT_EQ(errno, ENOENT);
}

// If the library followed a link there, it would write counters into any file of the user.
TEST_F(OwnDirectory, ALinkIsNoFileOfCounters) {
  const auto victim = directory_ + "/victim";
  ASSERT_EQ(::symlink(victim.c_str(), (directory_ + "/counters-mlx5_0").c_str()), 0);
  RunCounters counters(directory_, "mlx5_0");
  EXPECT_FALSE(std::filesystem::exists(victim));
  uverbs::DeviceCounters now{};
  now[0] = 7;
  counters.add(now);
  EXPECT_EQ(counters.read()[0], 7u) << "those of this process";
}

TEST_F(OwnDirectory, CountersAreOfAllProcesses) {
  RunCounters one(directory_, "mlx5_0");
  RunCounters other(directory_, "mlx5_0");
  uverbs::DeviceCounters now{};
  now[0] = 7;
  one.add(now);
  now[0] = 5;
  other.add(now);
  EXPECT_EQ(RunCounters(directory_, "mlx5_0").read()[0], 12u);
}

// A program that shows counters has no fault handler: a page without a file would end it.
TEST_F(OwnDirectory, ATruncatedFileOfCountersReadsAsZeros) {
  RunCounters counters(directory_, "mlx5_0");
  uverbs::DeviceCounters now{};
  now[0] = 7;
  counters.add(now);
  ASSERT_EQ(::truncate((directory_ + "/counters-mlx5_0").c_str(), 0), 0);
  EXPECT_EQ(counters.read()[0], 0u);
}

}  // namespace
}  // namespace softhca::door
