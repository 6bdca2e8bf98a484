#include "os/file_size.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace softhca::os {
namespace {

bool may_be_as_long_as(std::size_t size) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || size <= limit.rlim_cur;
}

}  // namespace

util::Result<void> set_file_size(int fd, std::size_t size, std::string_view what) {
  if (!may_be_as_long_as(size)) {
    errno = EFBIG;
    return util::fail(
        fmt::format("{}: a file of {} bytes is above the limit (ulimit -f)", what, size));
  }
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return util::fail_errno(std::string(what));
  return {};
}

bool write_at(int fd, std::span<const std::byte> bytes, off_t offset) {
  if (!may_be_as_long_as(static_cast<std::size_t>(offset) + bytes.size())) {
    errno = EFBIG;
    return false;
  }
  return ::pwrite(fd, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size());
}

void raise_file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace softhca::os
