// Signals that never block, whatever the receiver did to the eventfd.
#include "os/event_signal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include <thread>

#include "os/open_descriptors.h"

namespace softhca {
namespace {

using os::EventSignal;
using os::UniqueFd;
using test::event;
using test::signals;

EventSignal& events() { return EventSignal::instance(); }

TEST(EventSignal, AddsOneEachTime) {
  const auto fd = event();
  for (int i = 0; i < 1000; ++i) events().raise(fd.get());
  EXPECT_EQ(signals(fd), 1000u);
}

TEST(EventSignal, NeverWaitsForAFullCounter) {
  if (!events().never_waits()) GTEST_SKIP() << "no asynchronous I/O here";
  const UniqueFd fd(::eventfd(0, EFD_CLOEXEC));  // without O_NONBLOCK, write() would block
  const std::uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(fd.get(), &full, sizeof full), 8);
  EXPECT_FALSE(test::waits_until_read(fd.get(), [&] {
    for (int i = 0; i < 10; ++i) events().raise(fd.get());
  }));
}

// A process that shares the eventfd has read it, between poll() and this.
TEST(EventSignal, DrainsWithoutWaiting) {
  const UniqueFd fd(::eventfd(3, EFD_CLOEXEC));  // without O_NONBLOCK, read() would block
  EventSignal::drain(fd.get());
  EventSignal::drain(fd.get());
  events().raise(fd.get());
  std::uint64_t count = 0;
  ASSERT_EQ(::read(fd.get(), &count, sizeof count), 8);
  EXPECT_EQ(count, 1u);
}

TEST(EventSignal, KnowsAnEventfdFromEverythingElse) {
  const auto fd = event();
  EXPECT_TRUE(events().is_eventfd(fd.get()));
  EXPECT_EQ(signals(fd), 0u) << "asking signals nothing";
  const UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  sigset_t none;
  ::sigemptyset(&none);
  const UniqueFd signal(::signalfd(-1, &none, SFD_CLOEXEC));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto memory = test::memory_file(4096);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd pipe_read(ends[0]), pipe_write(ends[1]);
  for (const auto* other : {&timer, &epoll, &signal, &null, &memory, &pipe_read, &pipe_write}) {
    EXPECT_FALSE(events().is_eventfd(other->get()));
  }
}

TEST(EventSignal, LosesNothingBetweenThreads) {
  const auto a = event(), b = event();
  const auto many = [](const UniqueFd& fd) {
    for (int i = 0; i < 20000; ++i) events().raise(fd.get());
  };
  std::thread other([&] { many(a); });
  many(b);
  other.join();
  EXPECT_EQ(signals(a), 20000u);
  EXPECT_EQ(signals(b), 20000u);
}

}  // namespace
}  // namespace softhca
