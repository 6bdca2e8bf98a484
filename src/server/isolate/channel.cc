#include "server/isolate/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "os/foreign_bytes.h"

namespace softhca::server {
namespace {

struct Head {
  std::uint32_t length;
  std::uint32_t number;
};

/// Maximum bytes of one receive, so that an endless sender gets only its turn.
constexpr std::size_t kPiece = 64 << 10;

bool is_for_later() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Channel::Channel(os::EventLoop& loop, os::UniqueFd socket, std::size_t receive_max,
                 os::Janitor& janitor, Handlers handlers)
    : loop_(loop),
      janitor_(janitor),
      socket_(std::move(socket)),
      receive_max_(receive_max),
      handlers_(std::move(handlers)) {}

Channel::~Channel() {
  loop_.remove(socket_.get());
  os::close_connection(std::move(socket_), janitor_);
}

util::Result<void> Channel::start() {
  return loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t events) { handle(events); });
}

bool Channel::send(std::uint32_t number, std::string_view text) {
  if (ended_ || unsent_.size() - sent_ > kAnswerMax) return false;
  const Head head{static_cast<std::uint32_t>(text.size()), number};
  unsent_.append(reinterpret_cast<const char*>(&head), sizeof head);
  unsent_.append(text);
  if (!flush()) end();
  return !ended_;
}

void Channel::handle(std::uint32_t events) {
  const bool alive = (!(events & EPOLLOUT) || flush()) && (!(events & ~EPOLLOUT) || receive());
  if (!alive) end();
}

bool Channel::receive() {
  std::array<char, kPiece> piece;
  const auto size = os::receive_bytes(socket_.get(), piece, janitor_);
  if (size < 0) return is_for_later();
  if (size == 0) return false;
  received_.append(piece.data(), static_cast<std::size_t>(size));
  std::string_view rest = received_;
  Head head;
  while (rest.size() >= sizeof head) {
    std::memcpy(&head, rest.data(), sizeof head);
    nonsense_ = head.length > receive_max_;
    if (nonsense_) return false;
    if (rest.size() - sizeof head < head.length) break;
    handlers_.message(head.number, rest.substr(sizeof head, head.length));
    rest.remove_prefix(sizeof head + head.length);
  }
  received_.erase(0, received_.size() - rest.size());
  return true;
}

bool Channel::flush() {
  if (const auto rest = std::string_view(unsent_).substr(sent_); !rest.empty()) {
    const auto size = ::send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && !is_for_later()) return false;
    if (size > 0) sent_ += static_cast<std::size_t>(size);
  }
  if (sent_ == unsent_.size()) {
    unsent_.clear();
    sent_ = 0;
  }
  if (watching_writes_ == unsent_.empty()) {
    watching_writes_ = !watching_writes_;
    loop_.set_events(socket_.get(), watching_writes_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
  return true;
}

void Channel::end() {
  if (std::exchange(ended_, true)) return;
  loop_.remove(socket_.get());
  handlers_.end(nonsense_);
}

}  // namespace softhca::server
