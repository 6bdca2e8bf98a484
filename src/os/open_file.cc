#include "os/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace softhca::os {
namespace {

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

util::Result<void> mark_open(int fd) {
  auto lock = whole_file(F_RDLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) return util::fail_errno("lock of an open file");
  return {};
}

bool mark_alone(int fd) {
  auto lock = whole_file(F_WRLCK);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void unmark(int fd) {
  auto lock = whole_file(F_UNLCK);
  (void)::fcntl(fd, F_OFD_SETLK, &lock);
}

bool is_marked_open(int own) {
  auto lock = whole_file(F_WRLCK);
  return ::fcntl(own, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int reopen(int fd, int flags) {
  return ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags | O_CLOEXEC);
}

}  // namespace softhca::os
