// The file that represents a device.
#include "door/engine/device_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "os/forbidden_call.h"

namespace softhca::door {
namespace {

TEST(DoorDeviceFile, IsClosedWithTheLastOfItsDescriptors) {
  int fd = -1;
  const auto file = DeviceFile::create(fd);
  ASSERT_TRUE(file);
  const int copy = ::dup(fd);
  ::close(fd);
  EXPECT_FALSE(file->closed());
  ::close(copy);
  EXPECT_TRUE(file->closed());
}

TEST(DoorDeviceFile, KeepsItsSize) {
  int fd = -1;
  const auto file = DeviceFile::create(fd);
  ASSERT_TRUE(file);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  ::close(fd);
}

TEST(DoorDeviceFile, IsNotMadeWhereFilesMustBeSmallAndNoSignalIsLeft) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  int fd = -1;
  EXPECT_FALSE(DeviceFile::create(fd));
  EXPECT_EQ(fd, -EFBIG);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGXFSZ), 0);
}

// The errno is EIO, not ENOENT: the device file that the program has named is not missing.
TEST(DoorDeviceFile, WithoutProcTheErrorIsOfInputAndOutput) {
  const auto child = ::fork();
  if (child == 0) {
    if (!test::forbid_call(SYS_openat, ENOENT)) ::_exit(0);
    int fd = -1;
    ::_exit(DeviceFile::create(fd) ? 0 : -fd);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EIO);
}

}  // namespace
}  // namespace softhca::door
