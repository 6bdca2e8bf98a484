#include "run/run_bases.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/unique_fd.h"
#include "util/log.h"

namespace softhca::run {
namespace {

/// Leaves room for a socket's path below it in a sockaddr_un.
constexpr std::size_t kBaseMax = 48;

/// Why the directory is unsuitable, as the rest of a sentence that begins with its name: it cannot
/// be used, or another user could write to it or replace its contents. Empty: it is suitable.
std::string why_unfit(const std::string& path) {
  struct stat status;
  if (!path.starts_with('/')) return "is not an absolute path";
  if (path.size() > kBaseMax) return fmt::format("is longer than {} characters", kBaseMax);
  if (::stat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? "does not exist"
                           : fmt::format("cannot be used ({})", ::strerror(errno));
  }
  if (!S_ISDIR(status.st_mode)) return "is not a directory";
  if ((status.st_mode & S_ISVTX) == 0) {
    if (status.st_uid != ::geteuid()) return fmt::format("belongs to uid {}", status.st_uid);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written to by other users";
  }
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    return fmt::format("cannot be written to ({})", ::strerror(errno));
  }
  return {};
}

/// The directory in variable `name`, or an empty string if it is unsuitable.
std::string from_environment(const char* name, std::string& reasons) {
  const char* const given = ::secure_getenv(name);
  if (given == nullptr || *given == '\0') return {};
  const auto why = why_unfit(given);
  if (why.empty()) return given;
  reasons += fmt::format("{}='{}' {}; ", name, given, why);
  return {};
}

void warn_once(const std::string& reasons, const std::string& instead) {
  static bool warned = false;
  if (reasons.empty() || warned) return;
  warned = true;
  util::log(util::LogLevel::kWarning, "{}'{}' is used instead", reasons, instead);
}

}  // namespace

util::Result<std::vector<std::string>> run_bases() {
  const auto usual = fmt::format("/run/user/{}", ::geteuid());
  std::string reasons;
  const auto runtime = from_environment("XDG_RUNTIME_DIR", reasons);
  if (!runtime.empty() && runtime != usual) return std::vector{runtime};
  std::vector<std::string> all;
  const auto add = [&all](const std::string& path) {
    if (!path.empty() && std::ranges::find(all, path) == all.end()) all.push_back(path);
  };
  if (why_unfit(usual).empty()) add(usual);
  add(from_environment("TMPDIR", reasons));
  const auto why = why_unfit("/tmp");
  if (why.empty()) add("/tmp");
  if (!all.empty()) {
    warn_once(reasons, all.front());
    return all;
  }
  return util::fail(fmt::format(
      "there is no directory for sockets: {}'/tmp' {}; set XDG_RUNTIME_DIR to a directory that is "
      "yours alone (mkdir -m 700), with a path of at most {} characters",
      reasons, why, kBaseMax));
}

util::Result<void> check_private_directory(const std::string& path) {
  const os::UniqueFd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!directory || ::fstat(directory.get(), &status) != 0) {
    return util::fail_errno(fmt::format("'{}'", path));
  }
  if (status.st_uid != ::geteuid()) {
    return util::fail(
        fmt::format("'{}' belongs to uid {}; set XDG_RUNTIME_DIR to a directory of yours", path,
                    status.st_uid));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return util::fail(
        // no format: permissions of POSIX
        fmt::format("'{}' is open to other users (mode {:o})", path, status.st_mode & 07777));
  }
  return {};
}

}  // namespace softhca::run
