#include "perf/peer.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "util/clock.h"

namespace softhca::perf {

namespace verbs = driver::verbs;

namespace {

constexpr std::size_t kText = 128;  ///< bytes, padded with zeros
constexpr auto kPatience = std::chrono::seconds(20);

/// Disables Nagle's algorithm: messages are small, and the peer waits for each.
int at_once(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

util::Result<Peer> Peer::listen(std::uint16_t port) {
  const auto fd = verbs::accept_one(port);
  if (!fd) return tl::unexpected(fd.error());
  return Peer(at_once(*fd));
}

util::Result<Peer> Peer::dial(const std::string& host, std::uint16_t port,
                              const std::function<bool()>& go_on) {
  const auto limit = util::monotonic_now() + kPatience;
  for (;;) {
    const auto fd = verbs::dial(host, port);
    if (fd) return Peer(at_once(*fd));
    if (util::monotonic_now() > limit || !go_on()) return tl::unexpected(fd.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

util::Result<void> Peer::send(const void* bytes, std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size != 0) {
    const auto put = ::send(fd_.get(), at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return util::fail_errno("the peer");
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return {};
}

util::Result<void> Peer::receive(void* bytes, std::size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size != 0) {
    const auto got = ::recv(fd_.get(), at, size, 0);
    if (got < 0) return util::fail_errno("the peer");
    if (got == 0) return util::fail("the peer has gone");
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

util::Result<void> Peer::agree(const std::string& what) {
  std::array<char, kText> ours{}, theirs{};
  std::copy_n(what.begin(), std::min(what.size(), kText - 1), ours.begin());
  if (auto done = send(ours.data(), ours.size()); !done) return done;
  if (auto done = receive(theirs.data(), theirs.size()); !done) return done;
  theirs.back() = '\0';
  if (ours == theirs) return {};
  return util::fail(
      fmt::format("the peer measures '{}', this end '{}'", theirs.data(), ours.data()));
}

util::Result<verbs::Endpoint> Peer::exchange(const verbs::Endpoint& here) {
  if (auto done = verbs::send_endpoint(fd_.get(), here); !done) return tl::unexpected(done.error());
  return verbs::receive_endpoint(fd_.get());
}

util::Result<void> Peer::meet() {
  char byte = 1;
  if (auto done = send(&byte, 1); !done) return done;
  return receive(&byte, 1);
}

util::Result<void> Peer::finish() {
  const char byte = 1;
  return send(&byte, 1);
}

util::Result<bool> Peer::finished() {
  char byte = 0;
  const auto got = ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
  if (got == 1) return true;
  if (got == 0) return util::fail("the peer has gone");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
  return util::fail_errno("the peer");
}

}  // namespace softhca::perf
