#include "server/isolate/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace softhca::server {
namespace {

/// Wait status of a process that runs `what` in the sandbox. It exits with 42 if `what` returns.
int status_of(const std::function<void()>& what) {
  const auto pid = ::fork();
  if (pid == 0) {
    const auto remarks = enter_sandbox();
    if (!remarks) ::_exit(1);
    what();
    ::_exit(42);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

bool lives(const std::function<void()>& what) {
  const auto status = status_of(what);
  return WIFEXITED(status) && WEXITSTATUS(status) == 42;
}
bool is_killed(const std::function<void()>& what) {
  const auto status = status_of(what);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

/// With sanitizers, the sandbox forbids nothing.
class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    GTEST_SKIP() << "not with sanitizers";
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "not with sanitizers";
#endif
  }
};

TEST_F(Sandbox, CallsThatServingNeedsAreAllowed) {
  EXPECT_TRUE(lives([] {}));
  EXPECT_TRUE(lives([] { std::thread([] {}).join(); }));
  EXPECT_TRUE(lives([] {
    void* memory = ::malloc(std::size_t{64} << 20);
    ::free(::realloc(memory, std::size_t{128} << 20));
  }));
}

TEST_F(Sandbox, ThereIsNoFileToOpen) {
  EXPECT_TRUE(is_killed([] { (void)::open("/etc/passwd", O_RDONLY); }));
}
TEST_F(Sandbox, ThereIsNoProgramToRun) {
  EXPECT_TRUE(is_killed([] { ::execl("/bin/true", "true", nullptr); }));
}
TEST_F(Sandbox, ThereIsNoOtherProcess) {
  EXPECT_TRUE(is_killed([] { (void)::fork(); }));
  EXPECT_TRUE(is_killed([] { ::kill(::getppid(), 0); }));
}
TEST_F(Sandbox, ThereIsNoSocketToMakeOrToChange) {
  EXPECT_TRUE(is_killed([] { (void)::socket(AF_UNIX, SOCK_STREAM, 0); }));
  EXPECT_TRUE(is_killed([] { ::listen(0, 0); }));
}
TEST_F(Sandbox, MemoryIsNotExecuted) {
  const auto map = [](int protection) {
    (void)::mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  EXPECT_TRUE(lives([&] { map(PROT_READ | PROT_WRITE); }));
  EXPECT_TRUE(is_killed([&] { map(PROT_READ | PROT_WRITE | PROT_EXEC); }));
}
TEST_F(Sandbox, AnAssertionEndsTheProcessAsAlways) {
  const auto status = status_of([] { ::abort(); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}
TEST_F(Sandbox, TheCLibrarySaysWhyItEndsTheProcess) {
  const auto status = status_of([] {
    // On a broken heap, glibc prints a message with writev and then aborts.
    auto* volatile block = static_cast<char*>(::malloc(64));
    auto* volatile inside = block + 16;
    ::free(inside);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

}  // namespace
}  // namespace softhca::server
