// Preloaded into both ends of fi_pingpong, so that neither leaves before the other has read all its
// completions.
//
// fi_pingpong closes its control connection when it has read its last completion, and then its
// endpoint. rxm, the provider of RDM endpoints, reads its CQ first and its events afterwards. If
// the peer's last message and its disconnection arrive between the two, rxm closes the QP with
// unread completions, and reports that they were flushed (libfabric, prov/rxm/src:
// rxm_ep_do_progress, rxm_process_shutdown). So close() of a TCP connection waits here until the
// peer has closed its end as well.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace {

bool is_tcp_connection(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  int type = 0;
  socklen_t length = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)
    return false;
  return peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
}

/// Ends this direction of the connection, and waits for the end of the other. A peer that dies ends
/// it, too.
void wait_for_peer(int fd) {
  ::shutdown(fd, SHUT_WR);
  char byte = 0;
  ssize_t got = 0;
  do {
    got = ::recv(fd, &byte, 1, 0);
  } while (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)));
}

}  // namespace

extern "C" int close(int fd) {
  static const auto next = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "close"));
  if (is_tcp_connection(fd)) wait_for_peer(fd);
  return next(fd);
}
