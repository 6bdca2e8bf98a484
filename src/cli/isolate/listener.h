// A listening socket that is handed to one process after the other.
#pragma once

#include <string>

#include "util/result.h"
#include "vfio_user/unique_fd.h"
#include "vfio_user/unix_socket.h"

namespace softhca::cli {

/// Its file goes with it.
class Listener {
 public:
  static util::Result<Listener> listen(std::string path, const vfio_user::SocketAccess& access);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return socket_.get(); }
  /// As new, for the next process: what the one before it did to the socket is undone. Those who
  /// wait to be accepted go on waiting, if that is possible.
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
