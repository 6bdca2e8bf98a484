// Log lines go to standard error, and to no other file that gets its number.
#include "door/process/standard_error.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/unique_fd.h"
#include "util/log.h"

namespace softhca::door {
namespace {

using os::UniqueFd;

/// Gives standard error back to the test program.
class DoorStandardError : public testing::Test {
 protected:
  DoorStandardError() : before_(::dup(STDERR_FILENO)) {}
  ~DoorStandardError() override {
    ::dup2(before_.get(), STDERR_FILENO);
    note_standard_error();
  }
  /// Creates a file that has no path.
  static UniqueFd file() { return UniqueFd(::memfd_create("errors", MFD_CLOEXEC)); }
  static void put(const UniqueFd& file) { ASSERT_EQ(::dup2(file.get(), STDERR_FILENO), 2); }
  static off_t size(const UniqueFd& file) {
    struct stat status{};
    EXPECT_EQ(::fstat(file.get(), &status), 0);
    return status.st_size;
  }
  static void log() { write_to_standard_error(util::LogLevel::kError, "words"); }

 private:
  const UniqueFd before_;
};

TEST_F(DoorStandardError, TakesLinesWhereTheProgramHasPutIt) {
  const auto errors = file();
  put(errors);
  note_standard_error();
  log();
  EXPECT_EQ(size(errors), 22) << "softhca: error: words";
}

// A daemon closes its standard descriptors, and other files get their numbers.
TEST_F(DoorStandardError, AFileThatGetsTheNumberTakesNone) {
  const auto errors = file(), data = file();
  put(errors);
  note_standard_error();
  put(data);
  log();
  EXPECT_EQ(size(data), 0);
  ::close(STDERR_FILENO);
  log();
  put(errors);
  log();
  EXPECT_NE(size(errors), 0) << "it is back";
}

TEST_F(DoorStandardError, AProgramStartedWithoutItHasNone) {
  ::close(STDERR_FILENO);
  note_standard_error();
  const auto data = file();
  put(data);
  log();
  EXPECT_EQ(size(data), 0);
}

/// Runs `work` in a forked child.
template <class Work>
void in_child(Work&& work) {
  const auto child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

// A child that fork() did not create is like one of vfork(): only keep_standard_error_in_child()
// makes the difference.
TEST_F(DoorStandardError, OnlyAForkedChildMovesIt) {
  const auto errors = file(), others = file(), own = file();
  put(errors);
  note_standard_error();
  in_child([&] {
    put(others);
    note_standard_error();
    log();
  });
  EXPECT_EQ(size(others), 0);
  in_child([&] {
    keep_standard_error_in_child();
    put(own);
    note_standard_error();
    log();
  });
  EXPECT_NE(size(own), 0);
}

}  // namespace
}  // namespace softhca::door
