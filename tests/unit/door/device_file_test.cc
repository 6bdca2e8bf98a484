// The file that represents a device.
#include "door/device_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

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
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGXFSZ), 0);
}

}  // namespace
}  // namespace softhca::door
