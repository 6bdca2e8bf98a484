// os::EventLoop, on which the server is built.
#include "os/event_loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>

#include <thread>

#include "os/open_descriptors.h"

namespace softhca {
namespace {

using os::UniqueFd;
using test::event;

constexpr auto kNow = util::Time{};
/// How long to wait for an event that may never happen.
constexpr auto kPatience = std::chrono::seconds(20);

void signal(const UniqueFd& fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

class EventLoopTest : public ::testing::Test {
 protected:
  std::unique_ptr<os::EventLoop> loop_ = os::EventLoop::create().value();
};

TEST_F(EventLoopTest, CallsReadyDescriptorsOnly) {
  const auto a = event(), b = event();
  unsigned a_calls = 0, b_calls = 0;
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, [&](std::uint32_t) { ++a_calls; }));
  ASSERT_TRUE(loop_->add(b.get(), EPOLLIN, [&](std::uint32_t) { ++b_calls; }));
  EXPECT_EQ(loop_->run_once(kNow), 0u);
  signal(b);
  EXPECT_EQ(loop_->run_once(util::kNever), 1u);
  EXPECT_EQ(a_calls, 0u);
  EXPECT_EQ(b_calls, 1u);
  EXPECT_EQ(loop_->run_once(kNow), 1u) << "level-triggered: it was not read";
}

TEST_F(EventLoopTest, ACallbackMayRemoveItselfAndOthers) {
  const auto a = event(), b = event();
  unsigned calls = 0;
  const auto remove_both = [&](std::uint32_t) {
    ++calls;
    loop_->remove(a.get());
    loop_->remove(b.get());
  };
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, remove_both));
  ASSERT_TRUE(loop_->add(b.get(), EPOLLIN, remove_both));
  signal(a);
  signal(b);
  EXPECT_EQ(loop_->run_once(kNow), 1u);
  EXPECT_EQ(loop_->run_once(kNow), 0u);
  EXPECT_EQ(calls, 1u);
}

TEST_F(EventLoopTest, AnEventOfARemovedDescriptorDoesNotReachItsSuccessor) {
  const auto a = event(), b = event();
  unsigned successor = 0;
  // The first to run replaces the other.
  const auto take_over = [&](const UniqueFd& mine, const UniqueFd& other) {
    loop_->remove(mine.get());
    loop_->remove(other.get());
    ASSERT_TRUE(loop_->add(other.get(), EPOLLIN, [&](std::uint32_t) { ++successor; }));
  };
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, [&](std::uint32_t) { take_over(a, b); }));
  ASSERT_TRUE(loop_->add(b.get(), EPOLLIN, [&](std::uint32_t) { take_over(b, a); }));
  signal(a);
  signal(b);
  loop_->run_once(kNow);
  EXPECT_EQ(successor, 0u) << "not in the turn in which it came";
  loop_->run_once(kNow);
  EXPECT_EQ(successor, 1u);
}

TEST_F(EventLoopTest, ACallbackMayAddManyDescriptors) {
  const auto a = event();
  std::vector<UniqueFd> more;
  unsigned calls = 0;
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, [&](std::uint32_t) {
    loop_->remove(a.get());
    for (int i = 0; i < 200; ++i) {
      more.push_back(event());
      signal(more.back());
      ASSERT_TRUE(loop_->add(more.back().get(), EPOLLIN, [&](std::uint32_t) { ++calls; }));
    }
  }));
  signal(a);
  for (int i = 0; i < 20; ++i) loop_->run_once(kNow);
  EXPECT_GE(calls, 200u);
}

TEST_F(EventLoopTest, WaitsUntilTheDeadline) {
  const auto start = util::monotonic_now();
  const auto until = start + std::chrono::milliseconds(10);
  EXPECT_EQ(loop_->run_once(until), 0u);
  EXPECT_GE(util::monotonic_now(), until);
}

TEST_F(EventLoopTest, WakeEndsAWaitFromAnotherThread) {
  std::thread other([&] { loop_->wake(); });
  const auto limit = util::monotonic_now() + kPatience;
  EXPECT_EQ(loop_->run_once(limit), 1u);
  EXPECT_LT(util::monotonic_now(), limit);
  other.join();
  EXPECT_EQ(loop_->run_once(kNow), 0u);
}

TEST_F(EventLoopTest, WaitsForTheEventsThatWereSetLast) {
  const auto a = event();  // writable, but nothing to read
  unsigned calls = 0;
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, [&](std::uint32_t) { ++calls; }));
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 0u);
  loop_->set_events(a.get(), EPOLLOUT);
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 1u);
  loop_->set_events(a.get(), EPOLLIN);
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 1u);
}

TEST_F(EventLoopTest, WhenTheBudgetIsSpentTheRestIsFirstNextTime) {
  std::vector<UniqueFd> fds;
  std::vector<unsigned> calls(5);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    fds.push_back(event());
    signal(fds.back());
    ASSERT_TRUE(loop_->add(fds.back().get(), EPOLLIN, [&, i](std::uint32_t) {
      ++calls[i];
      loop_->budget().charge(os::EventLoop::kTurnWork / 2);
    }));
  }
  // All of them are always ready: without round-robin the first ones would get every turn.
  for (int turn = 0; turn < 30; ++turn) EXPECT_LE(loop_->run_once(kNow), 2u);
  for (const auto count : calls) {
    EXPECT_GE(count, 10u);
    EXPECT_LE(count, 12u);
  }
}

TEST_F(EventLoopTest, ANoticeIsCalledOnceForAllThatRaisedIt) {
  unsigned calls = 0;
  os::EventLoop::Notice notice(*loop_, [&] { ++calls; });
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 0u);
  notice.raise();
  notice.raise();
  const auto limit = util::monotonic_now() + kPatience;
  loop_->run_once(limit);
  EXPECT_LT(util::monotonic_now(), limit) << "the loop does not go to sleep";
  EXPECT_EQ(calls, 1u);
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 1u);
}

TEST_F(EventLoopTest, ANoticeThatRaisesItselfIsCalledInTheNextTurn) {
  unsigned calls = 0;
  os::EventLoop::Notice* self = nullptr;
  os::EventLoop::Notice notice(*loop_, [&] {
    if (++calls < 3) self->raise();
  });
  self = &notice;
  notice.raise();
  for (unsigned turn = 1; turn <= 3; ++turn) {
    loop_->run_once(util::monotonic_now() + kPatience);
    EXPECT_EQ(calls, turn);
  }
  loop_->run_once(kNow);
  EXPECT_EQ(calls, 3u);
}

// A flood that a notice works off must not shut out new connections and timers.
TEST_F(EventLoopTest, ANoticeThatAlwaysSpendsTheBudgetLeavesATurnForEachEvent) {
  os::EventLoop::Notice* self = nullptr;
  os::EventLoop::Notice notice(*loop_, [&] {
    loop_->budget().charge(2 * os::EventLoop::kTurnWork);
    self->raise();
  });
  self = &notice;
  notice.raise();
  std::vector<UniqueFd> fds;
  unsigned calls = 0;
  for (int i = 0; i != 3; ++i) {
    fds.push_back(event());
    signal(fds.back());
    const int fd = fds.back().get();
    ASSERT_TRUE(loop_->add(fd, EPOLLIN, [&, fd](std::uint32_t) {
      ++calls;
      loop_->remove(fd);
    }));
  }
  // The notice's own wakeup is an event, too.
  for (unsigned turn = 0; turn != 4; ++turn) {
    const auto before = calls;
    loop_->run_once(kNow);
    EXPECT_LE(calls, before + 1);
  }
  EXPECT_EQ(calls, 3u);
}

TEST_F(EventLoopTest, ANoticeOfAnotherThreadEndsAWait) {
  bool called = false;
  os::EventLoop::Notice notice(*loop_, [&] { called = true; });
  loop_->run_once(kNow);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    notice.raise();
  });
  const auto limit = util::monotonic_now() + kPatience;
  while (!called && util::monotonic_now() < limit) loop_->run_once(limit);
  EXPECT_LT(util::monotonic_now(), limit);
  EXPECT_TRUE(called);
  other.join();
}

TEST_F(EventLoopTest, RefusesADescriptorTwiceAndOneThatIsClosed) {
  const auto a = event();
  ASSERT_TRUE(loop_->add(a.get(), EPOLLIN, [](std::uint32_t) {}));
  EXPECT_FALSE(loop_->add(a.get(), EPOLLIN, [](std::uint32_t) {}));
  EXPECT_FALSE(loop_->add(9999, EPOLLIN, [](std::uint32_t) {}));
  loop_->remove(9999);
  loop_->remove(-1);
}

TEST_F(EventLoopTest, SignalsAreTheThreadsOwnAgainWhenTheLoopGoes) {
  sigset_t before, during, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ASSERT_TRUE(loop_->stop_on_signals());
  ::pthread_sigmask(SIG_SETMASK, nullptr, &during);
  EXPECT_EQ(::sigismember(&during, SIGINT), 1);
  loop_.reset();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&after, SIGINT), ::sigismember(&before, SIGINT));
}

}  // namespace
}  // namespace softhca
