#include "vfio_user/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "os/memory_reserve.h"
#include "os/unix_socket.h"

namespace softhca::vfio_user {
namespace {

/// Work of one client's visit before the next client's turn.
constexpr std::int64_t kVisitWork = 50'000;
/// Cost of accepting a client or turning it away, with all that a session allocates.
constexpr std::int64_t kAcceptWork = 50'000;

}  // namespace

util::Result<std::unique_ptr<Server>> Server::listen(os::EventLoop& loop, pcie::Function& function,
                                                     std::string path, const Options& options) {
  std::unique_ptr<Server> server(new Server(loop, function, std::move(path), options));
  if (auto bound = server->bind(); !bound) return tl::unexpected(bound.error());
  if (auto started = server->start(); !started) return tl::unexpected(started.error());
  return server;
}

util::Result<std::unique_ptr<Server>> Server::serve(os::EventLoop& loop, pcie::Function& function,
                                                    os::UniqueFd listener, const Options& options) {
  std::unique_ptr<Server> server(new Server(loop, function, {}, options));
  server->listener_ = std::move(listener);
  if (auto started = server->start(); !started) return tl::unexpected(started.error());
  return server;
}

Server::Server(os::EventLoop& loop, pcie::Function& function, std::string path,
               const Options& options)
    : loop_(loop),
      function_(function),
      path_(std::move(path)),
      options_(options),
      gone_(loop,
            [this] {
              if (!session_) return wait_for_client();
              visit([this](util::WorkBudget& budget) { return session_->handle_queued(budget); });
            }),
      janitor_(&gone_) {
  os::MemoryReserve::instance();
}

util::Result<void> Server::bind() {
  auto listener = os::bind_unix(path_, "vfio-user socket", options_.socket);
  if (!listener) return tl::unexpected(listener.error());
  listener_ = *std::move(listener);  // from here on the server owns the file
  if (::listen(listener_.get(), kBacklog) != 0) return util::fail_errno("vfio-user: listen");
  return {};
}

util::Result<void> Server::start() {
  more_.emplace(loop_, [this] {
    if (session_)
      visit([this](util::WorkBudget& budget) { return session_->handle_queued(budget); });
  });
  lost_.emplace(loop_, [this] {
    if (const auto* reason = session_ ? session_->lost() : nullptr) end_session(reason);
  });
  function_.set_on_failure([this] { fail(); });
  return loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
}

Server::~Server() {
  function_.set_on_failure(nullptr);
  if (session_) {
    loop_.remove(session_->fd());
    session_.reset();
  }
  if (listener_) {
    loop_.remove(listener_.get());
    if (!path_.empty()) ::unlink(path_.c_str());
  }
}

void Server::wait_for_client() {
  // has_room() is called only once, because the janitor works meanwhile. If there was no room, the
  // janitor must report the next release.
  const bool room = has_room();
  loop_.set_events(listener_.get(), room ? std::uint32_t{EPOLLIN} : std::uint32_t{0});
  if (!room) janitor_.notify_when_gone();
}

void Server::accept() {
  loop_.budget().charge(kAcceptWork);
  os::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    std::uint64_t held_back = 0;
    if (errno != EAGAIN && errno != ECONNABORTED &&
        notes_.allow(util::monotonic_now(), &held_back)) {
      util::log(util::LogLevel::kError, "{}: cannot accept a vfio-user client: {}",
                function_.name(), std::strerror(errno));
    }
    return;
  }
  try {
    begin_session(std::move(socket));
  } catch (const std::bad_alloc&) {
    note("out of memory; a client is turned away");
    if (session_) end_session();
  }
}

void Server::begin_session(os::UniqueFd socket) {
  const int fd = socket.get();
  session_.emplace(function_, std::move(socket),
                   SessionHost{&client_notes_, &*more_, &*lost_, &janitor_, &waits_}, options_);
  watched_ = EPOLLIN;
  const auto added = loop_.add(fd, watched_, [this](std::uint32_t events) {
    visit([this, events](util::WorkBudget& budget) {
      // A session that waits for the janitor handles no messages, only the end of its connection.
      const auto wanted = session_->wanted_events();
      if (wanted == 0) return (events & (EPOLLHUP | EPOLLERR)) == 0;
      // Either handler detects the end of the connection.
      return wanted == EPOLLOUT || events == EPOLLOUT ? session_->handle_writable(budget)
                                                      : session_->handle_readable(budget);
    });
  });
  if (!added) {
    util::log(util::LogLevel::kError, "{}: {}", function_.name(), added.error().message);
    return end_session();
  }
  loop_.set_events(listener_.get(), 0);
}

template <class Step>
void Server::visit(Step step) {
  const auto allowed = std::min(kVisitWork, std::max<std::int64_t>(1, loop_.budget().left()));
  util::WorkBudget budget(allowed);
  bool alive = false;
  try {
    alive = step(budget);
  } catch (const std::bad_alloc&) {
    note("out of memory; the client's session ends");
  }
  loop_.budget().charge(allowed - budget.left());
  if (!alive) return end_session();
  if (!std::exchange(has_client_, true)) note("vfio-user client connected");
  if (session_->wanted_events() == watched_) return;
  watched_ = session_->wanted_events();
  loop_.set_events(session_->fd(), watched_);
}

/// Memory ran out during work of the function, whose state is now undefined.
void Server::fail() {
  if (session_) return end_session("out of memory; the client's session ends");
  note("out of memory; the function is reset");
  os::MemoryReserve::instance().use([this] { function_.reset(); });
}

void Server::note(const char* what) {
  std::uint64_t held_back = 0;
  if (!client_lines_.allow(util::monotonic_now(), &held_back)) return;
  if (held_back == 0) return util::log(util::LogLevel::kInfo, "{}: {}", function_.name(), what);
  util::log(util::LogLevel::kInfo, "{}: {} ({} lines like this not shown)", function_.name(), what,
            held_back);
}

void Server::end_session() {
  loop_.remove(session_->fd());
  session_.reset();
  os::MemoryReserve::instance().refill();
  if (std::exchange(has_client_, false)) note("vfio-user client gone, function reset");
  wait_for_client();
}

}  // namespace softhca::vfio_user
