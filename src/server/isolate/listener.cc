#include "server/isolate/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vfio_user/server.h"

namespace softhca::server {

util::Result<Listener> Listener::listen(std::string path, const os::SocketAccess& access) {
  Listener listener(std::move(path), access);
  if (auto bound = listener.bind(); !bound) return tl::unexpected(bound.error());
  listener.access_.patience = util::Duration::zero();  // renew() must not wait
  return listener;
}

Listener::~Listener() {
  if (socket_) ::unlink(path_.c_str());
}

util::Result<void> Listener::bind() {
  auto socket = os::bind_unix(path_, "vfio-user socket", access_);
  if (!socket) return tl::unexpected(socket.error());
  socket_ = *std::move(socket);
  return start();
}

util::Result<void> Listener::start() {
  if (::listen(socket_.get(), vfio_user::Server::kBacklog) != 0) {
    return util::fail_errno("vfio-user: listen");
  }
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  return {};
}

util::Result<void> Listener::renew() {
  pollfd state{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&state, 1, 0) == 0) return start();
  // The process has shut it down for good. bind() replaces a socket file without a listener.
  socket_.reset();
  return bind();
}

}  // namespace softhca::server
