// Event descriptors (kernel interface 6).
#include "uverbs/event_pipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace softhca::uverbs {
namespace {

using Record = std::array<std::uint64_t, 2>;

class Events : public ::testing::Test {
 protected:
  Events() : pipe_(*EventPipe::create(sizeof(Record))), reader_(pipe_.take_reader()) {}
  void write(const Record& record) { pipe_.write(std::as_bytes(std::span(record))); }
  Record read() {
    Record record{};
    EXPECT_EQ(::read(reader_.get(), record.data(), sizeof record), ssize_t{sizeof record});
    return record;
  }
  EventPipe pipe_;
  os::UniqueFd reader_;
};

TEST_F(Events, AreReadOneByOneInTheirOrder) {
  write({1, 10});
  write({2, 20});
  EXPECT_EQ(read(), (Record{1, 10}));
  EXPECT_EQ(read(), (Record{2, 20}));
}

// The program waits for an acknowledgment of the events that it has read, and of no others.
TEST_F(Events, UnreadEventsOfADestroyedObjectAreRemoved) {
  for (std::uint64_t i = 0; i != 3; ++i) {
    write({1, i});
    write({2, i});
  }
  EXPECT_EQ(read(), (Record{1, 0}));
  EXPECT_EQ(pipe_.take_back(1), 2u);
  EXPECT_EQ(pipe_.take_back(1), 0u);
  for (std::uint64_t i = 0; i != 3; ++i) EXPECT_EQ(read(), (Record{2, i}));
}

TEST_F(Events, AreCountedUntilTheyAreRead) {
  EXPECT_EQ(pipe_.unread(), 0u);
  for (std::uint64_t i = 0; i != 20'000; ++i) write({7, i});
  EXPECT_EQ(pipe_.unread(), 20'000u) << "also those that the pipe does not hold";
  read();
  EXPECT_EQ(pipe_.unread(), 19'999u);
}

// A program may have thousands of channels, but needs descriptors below FD_SETSIZE.
TEST_F(Events, TakeOneLowNumber) {
  const os::UniqueFd before(::dup(reader_.get()));
  const auto one = EventPipe::create(sizeof(Record));
  const os::UniqueFd after(::dup(reader_.get()));
  EXPECT_EQ(after.get(), before.get() + 2);
}

TEST_F(Events, AreKnownByTheirFileWhileTheyLive) {
  struct stat status{};
  ASSERT_EQ(::fstat(reader_.get(), &status), 0);
  EXPECT_EQ(EventPipe::known().find(status.st_dev, status.st_ino), sizeof(Record));
  auto moved = std::make_unique<EventPipe>(std::move(pipe_));
  EXPECT_EQ(EventPipe::known().find(status.st_dev, status.st_ino), sizeof(Record));
  moved.reset();
  EXPECT_EQ(EventPipe::known().find(status.st_dev, status.st_ino), std::nullopt);
}

TEST_F(Events, EndWithTheLastCopyOfTheirDescriptor) {
  EXPECT_FALSE(pipe_.closed());
  os::UniqueFd copy(::dup(reader_.get()));
  reader_.reset();
  EXPECT_FALSE(pipe_.closed());
  copy.reset();
  EXPECT_TRUE(pipe_.closed());
}

TEST_F(Events, BeyondWhatAPipeHoldsWaitAndAreNotLost) {
  constexpr std::uint64_t kMany = 20'000;
  for (std::uint64_t i = 0; i != kMany; ++i) write({7, i});
  for (std::uint64_t i = 0; i != kMany; ++i) {
    pipe_.flush();
    ASSERT_EQ(read(), (Record{7, i}));
  }
}

}  // namespace
}  // namespace softhca::uverbs
