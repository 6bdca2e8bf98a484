#include "os/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

namespace softhca::os {
namespace {

constexpr auto kBetweenTries = std::chrono::milliseconds(10);

util::Result<sockaddr_un> address_of(const std::string& path, const std::string& what) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return util::fail(fmt::format("{} '{}': the path must have 1 to {} characters", what, path,
                                  sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// connect() that retries after a signal: a signal while the backlog is full does not change the
/// socket.
bool connect(int fd, const sockaddr_un& address) {
  int result;
  do {
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/// Removes a socket file without a listener. Other files are not touched.
bool remove_stale(const sockaddr_un& address) {
  struct stat status;
  if (::lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), address)) return false;
  return errno == ECONNREFUSED && ::unlink(address.sun_path) == 0;
}

bool bind_or_replace(int fd, const sockaddr_un& address, util::Duration patience) {
  const auto deadline = util::monotonic_now() + patience;
  const auto bind = [&] {
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  while (!bind()) {
    if (errno != EADDRINUSE) return false;
    if (remove_stale(address)) continue;
    if (util::monotonic_now() >= deadline) {
      errno = EADDRINUSE;
      return false;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return true;
}

util::Result<void> check_directory(const std::string& path, const std::string& what) {
  auto directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  struct stat status;
  if (::stat(directory.c_str(), &status) != 0) {
    return util::fail_errno(fmt::format("{} '{}': its directory", what, path));
  }
  if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX)) {
    return util::fail(fmt::format(
        "{} '{}': everybody may write to its directory, and put another socket in its place", what,
        path));
  }
  return {};
}

/// Why the path of `address` cannot be bound: bind_or_replace() replaces abandoned sockets.
std::string why_in_use(const sockaddr_un& address) {
  struct stat status;
  if (::lstat(address.sun_path, &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return "a file that is no socket has this name";
  }
  return "another process listens there (Address already in use)";
}

/// Why a connect to `address` failed with `error`. The kernel refuses files of other types and
/// abandoned sockets alike.
std::string why_not_connected(const sockaddr_un& address, int error) {
  struct stat status;
  if (error == ECONNREFUSED && ::stat(address.sun_path, &status) == 0) {
    if (S_ISDIR(status.st_mode)) return "this is a directory, not a socket";
    if (!S_ISSOCK(status.st_mode)) return "this is a file, not a socket";
    return "no process listens there any more (Connection refused)";
  }
  return fmt::format("connect: {}", std::strerror(error));
}

bool grant(const std::string& path, const SocketAccess& access) {
  if (access.group && ::lchown(path.c_str(), static_cast<::uid_t>(-1), *access.group) != 0) {
    return false;
  }
  return ::chmod(path.c_str(), access.mode) == 0;
}

/// Zero: no limit. The kernel applies SO_SNDTIMEO to connect() too.
util::Result<UniqueFd> connect_within(const std::string& path, const std::string& what,
                                      util::Duration patience) {
  const auto address = address_of(path, what);
  if (!address) return tl::unexpected(address.error());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return util::fail_errno(what + ": socket");
  const timeval limit{.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(patience).count(),
                      .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(socket.get(), *address)) return socket;
  if (errno == EAGAIN) {
    return util::fail(
        fmt::format("{} '{}': it does not answer (is the process that listens there "
                    "stopped?)",
                    what, path));
  }
  return util::fail(fmt::format("{} '{}': {}", what, path, why_not_connected(*address, errno)));
}

}  // namespace

util::Result<UniqueFd> bind_unix(const std::string& path, const std::string& what,
                                 const SocketAccess& access) {
  const auto address = address_of(path, what);
  if (!address) return tl::unexpected(address.error());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return util::fail_errno(what + ": socket");
  if (auto checked = check_directory(path, what); !checked) return tl::unexpected(checked.error());
  if (!bind_or_replace(socket.get(), *address, access.patience)) {
    if (errno == EADDRINUSE) {
      return util::fail(fmt::format("{} '{}': {}", what, path, why_in_use(*address)));
    }
    return util::fail_errno(fmt::format("{} '{}': bind", what, path));
  }
  if (!grant(path, access)) {
    auto error = util::fail_errno(fmt::format("{} '{}': permissions", what, path));
    ::unlink(path.c_str());
    return error;
  }
  return socket;
}

util::Result<UniqueFd> connect_unix(const std::string& path, const std::string& what) {
  return connect_within(path, what, util::Duration::zero());
}

UniqueFd connect_at_once(const std::string& path) {
  const auto address = address_of(path, "socket");
  if (!address) {
    errno = ENAMETOOLONG;
    return {};
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return socket && connect(socket.get(), *address) ? std::move(socket) : UniqueFd();
}

util::Result<UniqueFd> connect_own(const std::string& path, const std::string& what,
                                   util::Duration patience) {
  auto socket = connect_within(path, what, patience);
  if (!socket) return socket;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return util::fail_errno(what + ": SO_PEERCRED");
  }
  if (peer.uid == ::geteuid()) return socket;
  return util::fail(fmt::format("{} '{}': the process that listens there belongs to uid {}", what,
                                path, peer.uid));
}

}  // namespace softhca::os
