#include "vfio_user/server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace softhca::vfio_user {
namespace {

/// Clients that may wait while another one is served.
constexpr int kBacklog = 8;

util::Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return util::fail(fmt::format("vfio-user socket '{}': the path must have 1 to {} characters",
                                  path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd unix_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Removes a socket file whose server is gone. Anything else stays.
bool remove_stale(const sockaddr_un& address) {
  struct stat status;
  if (::lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const auto probe = unix_socket();
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return false;
  return errno == ECONNREFUSED && ::unlink(address.sun_path) == 0;
}

bool bind_or_replace(int fd, const sockaddr_un& address) {
  const auto bind = [&] {
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  if (bind()) return true;
  if (errno != EADDRINUSE) return false;
  if (remove_stale(address)) return bind();
  errno = EADDRINUSE;
  return false;
}

}  // namespace

util::Result<std::unique_ptr<Server>> Server::listen(util::EventLoop& loop,
                                                     pcie::Function& function, std::string path,
                                                     const Options& options) {
  std::unique_ptr<Server> server(new Server(loop, function, std::move(path), options));
  if (auto started = server->start(); !started) return tl::unexpected(started.error());
  return server;
}

Server::Server(util::EventLoop& loop, pcie::Function& function, std::string path,
               const Options& options)
    : loop_(loop), function_(function), path_(std::move(path)), options_(options) {}

util::Result<void> Server::start() {
  const auto address = address_of(path_);
  if (!address) return tl::unexpected(address.error());
  auto listener = unix_socket();
  if (!listener) return util::fail_errno("vfio-user: socket");
  if (!bind_or_replace(listener.get(), *address)) {
    return util::fail_errno(fmt::format("vfio-user socket '{}': bind", path_));
  }
  listener_ = std::move(listener);  // from here on the file is ours to remove
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("vfio-user: listen");
  queued_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!queued_) return util::fail_errno("vfio-user: eventfd");
  auto added = loop_.add(queued_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count;
    [[maybe_unused]] const auto drained = ::read(queued_.get(), &count, sizeof count);
    if (session_ && !session_->handle_queued()) end_session();
  });
  if (!added) return added;
  return wait_for_client();
}

Server::~Server() {
  if (session_) {
    loop_.remove(session_->fd());
    session_.reset();
  }
  if (queued_) loop_.remove(queued_.get());
  if (listener_) {
    loop_.remove(listener_.get());
    ::unlink(path_.c_str());
  }
}

util::Result<void> Server::wait_for_client() {
  return loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

void Server::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    std::uint64_t held_back = 0;
    if (errno != EAGAIN && errno != ECONNABORTED &&
        notes_.allow(util::monotonic_now(), &held_back)) {
      util::log(util::LogLevel::kError, "{}: cannot accept a vfio-user client: {}",
                function_.name(), std::strerror(errno));
    }
    return;
  }
  loop_.remove(listener_.get());
  const int fd = socket.get();
  session_.emplace(function_, std::move(socket), queued_.get(), options_);
  const auto added = loop_.add(fd, EPOLLIN, [this](std::uint32_t) {
    if (!session_->handle_readable()) end_session();
  });
  if (!added) {
    util::log(util::LogLevel::kError, "{}: {}", function_.name(), added.error().message);
    return end_session();
  }
  util::log(util::LogLevel::kInfo, "{}: vfio-user client connected", function_.name());
}

void Server::end_session() {
  loop_.remove(session_->fd());
  session_.reset();
  util::log(util::LogLevel::kInfo, "{}: vfio-user client gone, function reset", function_.name());
  if (auto waiting = wait_for_client(); !waiting) {
    util::log(util::LogLevel::kError, "{}: {}", function_.name(), waiting.error().message);
  }
}

}  // namespace softhca::vfio_user
