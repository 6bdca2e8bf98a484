#include "hub/join.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "os/kept_fd.h"
#include "os/unix_socket.h"

namespace softhca::hub {
namespace {

constexpr timeval kForAnswer{.tv_sec = kJoinPatience / std::chrono::seconds(1), .tv_usec = 0};

struct Greeting {
  Hello hello;
  std::array<UniqueFd, kFds> fds;
};

util::Result<Greeting> receive(int socket) {
  Greeting greeting;
  const auto received = receive_message(
      socket, std::as_writable_bytes(std::span(&greeting.hello, 1)), greeting.fds, MSG_WAITALL);
  switch (received) {
    case Received::kNothing:
      return errno == EAGAIN ? util::fail("hub: it does not answer (is softhca-hub stopped?)")
                             : util::fail_errno("hub: recvmsg");
    case Received::kEnd:
      return util::fail(
          "hub: it has refused us (the file log beside it, or its standard error, "
          "says why)");
    case Received::kFdsMissing:
      if (greeting.hello.magic != Hello::kMagic) break;
      return util::fail("hub: descriptors are missing (ulimit -n?)");
    case Received::kMessage:
      if (greeting.hello.magic == Hello::kMagic) return greeting;
      break;
    case Received::kOther:
      break;
  }
  return util::fail(
      "hub: it is of another version of softhca; softhca run --private has a network of its own");
}

util::Result<Joined> join_or_throw(const std::string& socket_path) {
  auto socket = os::connect_own(socket_path, "hub", kJoinPatience);
  if (!socket) return tl::unexpected(socket.error());
  Joined joined;
  joined.socket = os::keep(*std::move(socket));
  if (joined.socket.get() <= STDERR_FILENO) {
    joined.socket = UniqueFd(::fcntl(joined.socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!joined.socket) return util::fail_errno("hub: fcntl");
  }
  ::setsockopt(joined.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kForAnswer, sizeof kForAnswer);
  auto greeting = receive(joined.socket.get());
  if (!greeting) return tl::unexpected(greeting.error());
  auto& fds = greeting->fds;
  auto out = os::SharedRing::attach(fds[kOutRing].get());
  if (!out) return tl::unexpected(out.error());
  auto in = os::SharedRing::attach(fds[kInRing].get());
  if (!in) return tl::unexpected(in.error());
  joined.number = greeting->hello.number;
  joined.mac = greeting->hello.mac;
  joined.out.emplace(*std::move(out));
  joined.in.emplace(*std::move(in));
  joined.wake_hub = os::keep(std::move(fds[kWakeHub]));
  joined.wake_me = os::keep(std::move(fds[kWakeMe]));
  return joined;
}

}  // namespace

util::Result<Joined> join(const std::string& socket_path) {
  try {
    return join_or_throw(socket_path);
  } catch (const std::exception&) {
    return util::fail("no memory");  // short enough to need no allocation
  }
}

/// The socket file of a killed hub stays, but nothing listens there. For a listener, the kernel
/// refuses a socket of another type with EPROTOTYPE, before anything is queued.
bool has_gone(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return false;
  socket_path.copy(address.sun_path, socket_path.size());
  const UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(probe.get(), at, sizeof address) != 0 && errno == ECONNREFUSED;
}

}  // namespace softhca::hub
