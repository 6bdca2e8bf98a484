#include "door/standard_error.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace softhca::door {
namespace {

/// The file, as of the last note. No file has inode 0.
constinit std::atomic<dev_t> device = 0;
constinit std::atomic<ino_t> inode = 0;
/// The process whose descriptor it is. 0: no note was made yet.
constinit std::atomic<pid_t> process = 0;

}  // namespace

void note_standard_error() {
  const auto own = ::getpid();
  pid_t none = 0;
  if (!process.compare_exchange_strong(none, own) && none != own) return;
  struct stat status{};
  const bool is_open = ::fstat(STDERR_FILENO, &status) == 0;
  device = status.st_dev;
  inode = is_open ? status.st_ino : 0;
}

void keep_standard_error_in_child() { process = ::getpid(); }

void write_to_standard_error(util::LogLevel level, std::string_view text) {
  struct stat status{};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  if (status.st_dev == device && status.st_ino == inode) util::write_to_stderr(level, text);
}

}  // namespace softhca::door
