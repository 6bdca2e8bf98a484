// A listening socket that one process after another inherits.
#pragma once

#include <string>

#include "util/result.h"
#include "vfio_user/unique_fd.h"
#include "vfio_user/unix_socket.h"

namespace softhca::cli {

/// Removes its file when destroyed.
class Listener {
 public:
  static util::Result<Listener> listen(std::string path, const vfio_user::SocketAccess& access);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return socket_.get(); }
  /// Restores the socket for the next process, undoing what the previous one did to it. Pending
  /// connections are kept if possible.
  util::Result<void> renew();

 private:
  Listener(std::string path, const vfio_user::SocketAccess& access)
      : path_(std::move(path)), access_(access) {}
  util::Result<void> bind();
  util::Result<void> start();

  std::string path_;
  vfio_user::SocketAccess access_;
  vfio_user::UniqueFd socket_;
};

}  // namespace softhca::cli
