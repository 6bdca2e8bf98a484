#include "vfio_user/server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "vfio_user/unix_socket.h"

namespace softhca::vfio_user {
namespace {

/// Clients that may wait while another one is served.
constexpr int kBacklog = 8;

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
  auto listener = bind_unix(path_, "vfio-user socket");
  if (!listener) return tl::unexpected(listener.error());
  listener_ = *std::move(listener);  // from here on the file is ours to remove
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
