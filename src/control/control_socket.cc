#include "control/control_socket.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

#include "os/foreign_bytes.h"
#include "os/unix_socket.h"

namespace softhca::control {
namespace {

constexpr timeval kAnswerPatience{.tv_sec = 10, .tv_usec = 0};

}  // namespace

util::Result<std::unique_ptr<ControlSocket>> ControlSocket::listen(os::EventLoop& loop,
                                                                   std::string path,
                                                                   Handler handler) {
  std::unique_ptr<ControlSocket> socket(
      new ControlSocket(loop, std::move(path), std::move(handler)));
  if (auto started = socket->start(); !started) return tl::unexpected(started.error());
  return socket;
}

util::Result<void> ControlSocket::start() {
  auto bound = os::bind_unix(path_, "control socket");
  if (!bound) return tl::unexpected(bound.error());
  listener_ = *std::move(bound);
  self_ = std::make_shared<ControlSocket*>(this);
  if (::listen(listener_.get(), static_cast<int>(kConnectionsMax)) != 0) {
    return util::fail_errno("control socket: listen");
  }
  return loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

ControlSocket::~ControlSocket() {
  while (!connections_.empty()) end(connections_.begin());
  if (listener_) {
    loop_.remove(listener_.get());
    ::unlink(path_.c_str());
  }
}

void ControlSocket::accept() {
  os::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // If descriptors have run out, close the oldest connection: its descriptor serves the next
  // attempt.
  const bool exhausted = !fd && (errno == EMFILE || errno == ENFILE);
  if ((exhausted && !connections_.empty()) || connections_.size() == kConnectionsMax) {
    end(connections_.begin());
  }
  if (!fd) return;
  connections_.push_back(
      {.fd = std::move(fd), .request = {}, .answer = {}, .number = ++last_number_});
  const auto at = std::prev(connections_.end());
  if (!loop_.add(at->fd.get(), EPOLLIN, [this, at](std::uint32_t) { handle(at); })) end(at);
}

void ControlSocket::handle(Place at) {
  if (at->answering) {
    if (!send(*at)) end(at);
    return;
  }
  // An event while its answer is being built means that the client has hung up.
  if (at->asking || !receive(*at)) return end(at);
  if (!at->asking) return;
  loop_.set_events(at->fd.get(), 0);
  const auto number = at->number;
  const auto line_end = at->request.find('\n');
  if (line_end > kRequestMax) return answer(number, "error: the request is too long\n");
  const auto request = at->request.substr(0, line_end);
  const std::weak_ptr socket(self_);
  handler_(request, {.send =
                         [socket, number](std::string text) {
                           const auto self = socket.lock();
                           if (self) (*self)->answer(number, std::move(text));
                         },
                     .is_wanted =
                         [socket, number] {
                           const auto self = socket.lock();
                           return self && (*self)->is_asking(number);
                         }});
}

bool ControlSocket::is_asking(std::uint64_t number) const {
  return std::ranges::find(connections_, number, &Connection::number) != connections_.end();
}

void ControlSocket::answer(std::uint64_t number, std::string text) {
  const auto at = std::ranges::find(connections_, number, &Connection::number);
  if (at == connections_.end() || at->answering) return;
  at->answering = true;
  at->answer = std::move(text);
  if (!send(*at)) return end(at);
  // Send the rest when the client reads.
  loop_.set_events(at->fd.get(), EPOLLOUT);
}

bool ControlSocket::receive(Connection& connection) {
  std::array<char, kRequestMax> buffer;
  const auto size = os::receive_bytes(connection.fd.get(), buffer, janitor_);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  auto& request = connection.request;
  request.append(buffer.data(), static_cast<std::size_t>(size));
  const auto line_end = request.find('\n');
  if (line_end == std::string::npos && request.size() <= kRequestMax) return true;
  connection.asking = true;
  return true;
}

bool ControlSocket::send(Connection& connection) {
  const auto rest = std::string_view(connection.answer).substr(connection.sent);
  const auto size = ::send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<std::size_t>(size);
  return connection.sent < connection.answer.size();
}

void ControlSocket::end(Place at) {
  loop_.remove(at->fd.get());
  os::close_connection(std::move(at->fd), janitor_);
  connections_.erase(at);
}

util::Result<std::string> ask_control(const std::string& path, std::string_view request) {
  const auto socket = os::connect_unix(path, "control socket");
  if (!socket) return tl::unexpected(socket.error());
  ::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerPatience, sizeof kAnswerPatience);
  const auto line = std::string(request) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const auto size = ::send(socket->get(), &line[sent], line.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return util::fail_errno("control socket '" + path + "': send");
    sent += static_cast<std::size_t>(size);
  }
  std::string answer;
  std::array<char, 16384> buffer;
  while (true) {
    const auto size = ::recv(socket->get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      return util::fail(
          fmt::format("control socket '{}': no answer within {} s", path, kAnswerPatience.tv_sec));
    }
    if (size < 0) return util::fail_errno("control socket '" + path + "': no answer");
    if (size == 0) return answer;
    answer.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace softhca::control
