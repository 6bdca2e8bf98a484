// The descriptor of an event channel, as a program sees it.
#include "rdma_cm/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace softhca::rdma_cm {
namespace {

bool is_readable(int fd) {
  pollfd at{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&at, 1, 0) == 1;
}

TEST(Channel, IsReadableWhileEventsWait) {
  const auto channel = *Channel::create();
  const auto reader = channel->take_reader();
  EXPECT_FALSE(is_readable(reader.get()));
  channel->push({});
  channel->push({});
  EXPECT_TRUE(is_readable(reader.get()));
  EXPECT_TRUE(channel->pop());
  EXPECT_TRUE(is_readable(reader.get()));
  EXPECT_TRUE(channel->pop());
  EXPECT_FALSE(is_readable(reader.get()));
  EXPECT_FALSE(channel->pop());
}

TEST(Channel, KeepsTheOrderOfTheEventsThatAreNotRemoved) {
  const auto channel = *Channel::create();
  const auto reader = channel->take_reader();
  for (std::uint32_t i = 0; i != 6; ++i) channel->push({.counted_for = i});
  std::vector<std::uint32_t> removed, left;
  const auto visit = [&](const Event& event) { removed.push_back(event.counted_for); };
  channel->remove_if([](const Event& event) { return event.counted_for % 2 == 0; }, visit);
  EXPECT_TRUE(is_readable(reader.get()));
  EXPECT_EQ(removed, (std::vector<std::uint32_t>{0, 2, 4}));
  while (const auto event = channel->pop()) left.push_back(event->counted_for);
  EXPECT_EQ(left, (std::vector<std::uint32_t>{1, 3, 5}));
  channel->push({.counted_for = 7});
  channel->remove_if([](const Event&) { return true; }, visit);
  EXPECT_FALSE(is_readable(reader.get()));
  EXPECT_EQ(removed.back(), 7u);
}

// One thread blocks in read() while another takes the events.
TEST(Channel, IsReadableOrNotWhateverAWaiterHasRead) {
  const auto channel = *Channel::create();
  const auto reader = channel->take_reader();
  char byte;
  channel->push({});
  channel->push({});
  EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
  EXPECT_TRUE(channel->pop());
  EXPECT_TRUE(is_readable(reader.get())) << "one waits still";
  EXPECT_TRUE(channel->pop());
  EXPECT_FALSE(is_readable(reader.get()));

  channel->push({});
  EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
  channel->remove_if([](const Event&) { return true; }, [](const Event&) {});
  channel->push({});
  EXPECT_TRUE(channel->pop());
  EXPECT_FALSE(is_readable(reader.get()));
}

// After setuid(2), the program no longer owns the pipe's inode.
TEST(Channel, OutlivesThePrivilegesOfItsMaker) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root";
  const auto channel = *Channel::create();
  const auto reader = channel->take_reader();
  const auto child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    channel->push({});
    const bool taken = channel->pop().has_value();
    ::_exit(taken && !is_readable(reader.get()) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Channel, IsClosedWithTheLastCopyOfItsDescriptor) {
  const auto channel = *Channel::create();
  auto reader = channel->take_reader();
  os::UniqueFd copy(::fcntl(reader.get(), F_DUPFD_CLOEXEC, 0));
  reader.reset();
  EXPECT_FALSE(channel->closed());
  copy.reset();
  EXPECT_TRUE(channel->closed());
}

}  // namespace
}  // namespace softhca::rdma_cm
