#include "hub/join.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "hub/hello.h"
#include "vfio_user/unix_socket.h"

namespace softhca::hub {
namespace {

constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};

struct Greeting {
  Hello hello;
  std::array<UniqueFd, kFds> fds;
};

/// A program may have closed its standard input, output or errors, and open them anew: these
/// numbers are not ours to take.
UniqueFd above_standard(int fd) {
  UniqueFd taken(fd);
  if (fd > STDERR_FILENO) return taken;
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

/// Takes all descriptors of a message, however many; false if they are not as many as there are to
/// be.
bool take_fds(msghdr& message, std::array<UniqueFd, kFds>& fds) {
  std::size_t count = 0;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto bytes = part->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int), ++count) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      auto owned = above_standard(fd);
      if (count < kFds) fds[count] = std::move(owned);
    }
  }
  if (count != kFds || (message.msg_flags & MSG_CTRUNC) != 0) return false;
  for (const auto& fd : fds) {
    if (!fd) return false;
  }
  return true;
}

util::Result<Greeting> receive(int socket) {
  Greeting greeting;
  iovec bytes{.iov_base = &greeting.hello, .iov_len = sizeof greeting.hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFds * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return util::fail("hub: it does not answer");
  if (size < 0) return util::fail_errno("hub: recvmsg");
  const bool complete = take_fds(message, greeting.fds);
  if (size == 0) return util::fail("hub: it has refused us (its log says why)");
  if (size != sizeof greeting.hello || greeting.hello.magic != Hello::kMagic) {
    return util::fail("hub: it is of another version of softhca");
  }
  if (!complete) return util::fail("hub: descriptors are missing (ulimit -n?)");
  return greeting;
}

util::Result<Joined> join_or_throw(const std::string& socket_path) {
  auto socket = vfio_user::connect_unix(socket_path, "hub");
  if (!socket) return tl::unexpected(socket.error());
  Joined joined;
  joined.socket = *std::move(socket);
  if (joined.socket.get() <= STDERR_FILENO) {
    joined.socket = UniqueFd(::fcntl(joined.socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!joined.socket) return util::fail_errno("hub: fcntl");
  }
  ::setsockopt(joined.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  auto greeting = receive(joined.socket.get());
  if (!greeting) return tl::unexpected(greeting.error());
  auto& fds = greeting->fds;
  auto out = util::SharedRing::attach(fds[kOutRing].get());
  if (!out) return tl::unexpected(out.error());
  auto in = util::SharedRing::attach(fds[kInRing].get());
  if (!in) return tl::unexpected(in.error());
  joined.number = greeting->hello.number;
  joined.mac = greeting->hello.mac;
  joined.out.emplace(*std::move(out));
  joined.in.emplace(*std::move(in));
  joined.wake_hub = std::move(fds[kWakeHub]);
  joined.wake_me = std::move(fds[kWakeMe]);
  return joined;
}

}  // namespace

util::Result<Joined> join(const std::string& socket_path) {
  try {
    return join_or_throw(socket_path);
  } catch (const std::exception&) {
    return util::fail("no memory");  // short enough to need none
  }
}

}  // namespace softhca::hub
