#include "os/foreign_bytes.h"

#include <sys/socket.h>

#include <utility>

#include "os/receive_fds.h"

namespace softhca::os {

ssize_t receive_bytes(int socket, std::span<char> bytes, Janitor& janitor) {
  return receive_with_fds(socket, std::as_writable_bytes(bytes), MSG_DONTWAIT,
                          [&](UniqueFd fd) { janitor.close(std::move(fd)); })
      .size;
}

void close_connection(UniqueFd socket, Janitor& janitor) {
  if (!socket) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  janitor.close(std::move(socket));
}

}  // namespace softhca::os
