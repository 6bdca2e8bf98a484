#include "door/process/standard_error.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace softhca::door {
namespace {

/// The file behind the descriptor, as of the last note.
struct Noted {
  std::atomic<dev_t> device = 0;
  std::atomic<ino_t> inode = 0;    ///< 0, which no file has: it was closed
  std::atomic<pid_t> process = 0;  ///< whose descriptor it is; 0: no note was made yet
};
constinit Noted errors_file;

}  // namespace

void note_standard_error() {
  const auto own = ::getpid();
  pid_t none = 0;
  if (!errors_file.process.compare_exchange_strong(none, own) && none != own) return;
  struct stat status{};
  const bool is_open = ::fstat(STDERR_FILENO, &status) == 0;
  errors_file.device = status.st_dev;
  errors_file.inode = is_open ? status.st_ino : 0;
}

void keep_standard_error_in_child() { errors_file.process = ::getpid(); }

void write_to_standard_error(util::LogLevel level, std::string_view text) {
  struct stat status{};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  if (status.st_dev != errors_file.device || status.st_ino != errors_file.inode) return;
  util::write_to_stderr(level, text);
}

}  // namespace softhca::door
