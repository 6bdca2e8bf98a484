// Sends to NETLINK_RDMA sockets, which are answered here (netlink.h).
#include <linux/netlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "door/interpose/interpose.h"
#include "door/interpose/netlink.h"
#include "door/memory/fault_guard.h"

namespace softhca::door {
namespace {

SOFTHCA_NEXT Next<int, int, int, int> next_socket("socket");
SOFTHCA_NEXT Next<ssize_t, int, const void*, std::size_t, int> next_send("send");
SOFTHCA_NEXT Next<ssize_t, int, const void*, std::size_t, int, const sockaddr*, socklen_t>
    next_sendto("sendto");
SOFTHCA_NEXT Next<ssize_t, int, const msghdr*, int> next_sendmsg("sendmsg");

/// Requests are short; a longer one cannot be one that is supported.
using Request = std::array<std::byte, 4096>;

/// False: the kernel must serve the call. `result`: the call's return value.
bool serve(int fd, const void* bytes, std::size_t size, const sockaddr* to, socklen_t to_size,
           ssize_t& result) {
  const auto* paths = wanted_paths();
  if (paths == nullptr) return false;
  const int before = errno;
  const OwnCalls own;
  const CancelGuard guard;
  const int served = serve_rdma_netlink(fd, bytes, size, to, to_size, *paths);
  errno = served < 0 ? -served : before;
  result = served < 0 ? -1 : static_cast<ssize_t>(size);
  return served != 0;
}

/// Copies the parts of `message` into one buffer. Returns the length, or 0 if it is too long.
std::size_t gather(const msghdr& message, Request& request) {
  std::size_t size = 0;
  for (std::size_t i = 0; i != message.msg_iovlen; ++i) {
    const auto& piece = message.msg_iov[i];
    if (piece.iov_len > request.size() - size) return 0;
    if (piece.iov_len != 0) std::memcpy(&request[size], piece.iov_base, piece.iov_len);
    size += piece.iov_len;
  }
  return size;
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_socket, "socket", (int domain, int type, int protocol)) {
  const bool rdma = domain == AF_NETLINK && protocol == NETLINK_RDMA;
  const auto* paths = rdma ? wanted_paths() : nullptr;
  if (paths == nullptr) return next_socket(domain, type, protocol);
  const OwnCalls own;
  // With devices of the host the kernel would have to be asked too. Instead libibverbs and others
  // fall back to sysfs, which lists all devices (kernel interface 2.2).
  const int result = paths->first() != 0 ? -EPROTONOSUPPORT : open_rdma_netlink(type);
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

SOFTHCA_INTERPOSE(ssize_t, door_send, "send",
                  (int fd, const void* bytes, std::size_t size, int flags)) {
  ssize_t result = 0;
  if (may_be_rdma_netlink(fd) && serve(fd, bytes, size, nullptr, 0, result)) return result;
  return next_send(fd, bytes, size, flags);
}

SOFTHCA_INTERPOSE(ssize_t, door_sendto, "sendto",
                  (int fd, const void* bytes, std::size_t size, int flags, const sockaddr* to,
                   socklen_t to_size)) {
  ssize_t result = 0;
  if (may_be_rdma_netlink(fd) && serve(fd, bytes, size, to, to_size, result)) return result;
  return next_sendto(fd, bytes, size, flags, to, to_size);
}

SOFTHCA_INTERPOSE(ssize_t, door_sendmsg, "sendmsg", (int fd, const msghdr* message, int flags)) {
  if (may_be_rdma_netlink(fd) && message != nullptr) {
    Request request;
    const auto size = gather(*message, request);
    const auto* const to = static_cast<const sockaddr*>(message->msg_name);
    ssize_t result = 0;
    if (size != 0 && serve(fd, request.data(), size, to, message->msg_namelen, result)) {
      return result;
    }
  }
  return next_sendmsg(fd, message, flags);
}

}  // namespace softhca::door
