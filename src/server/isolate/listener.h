// A listening socket that one process after another inherits.
#pragma once

#include <string>

#include "os/unique_fd.h"
#include "os/unix_socket.h"
#include "util/result.h"

namespace softhca::server {

/// Removes its file when destroyed.
class Listener {
 public:
  static util::Result<Listener> listen(std::string path, const os::SocketAccess& access);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return socket_.get(); }
  /// Restores the socket for the next process, undoing what the previous one did to it. Pending
  /// connections are kept if possible.
  util::Result<void> renew();

 private:
  Listener(std::string path, const os::SocketAccess& access)
      : path_(std::move(path)), access_(access) {}
  util::Result<void> bind();
  util::Result<void> start();

  std::string path_;
  os::SocketAccess access_;
  os::UniqueFd socket_;
};

}  // namespace softhca::server
