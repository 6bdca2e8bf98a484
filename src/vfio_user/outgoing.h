// What goes out on a client's socket. Nobody waits for a client that does not read: what its socket
// does not take stays here until it does.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

class Outgoing {
 public:
  /// Sends on `socket`, or keeps what it does not take. `fds` stay open until they are out. False
  /// if the peer is gone.
  bool send(int socket, const protocol::Header& header, std::span<const std::byte> first,
            std::span<const std::byte> second, std::span<const int> fds);
  /// Sends what was kept, as far as the socket takes it. False if the peer is gone.
  bool flush(int socket);
  bool empty() const { return bytes_.empty(); }

 private:
  /// Descriptors go with the first byte of their message.
  struct Passed {
    std::size_t at;  ///< in bytes_
    std::vector<int> fds;
  };

  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;  ///< of bytes_
  std::deque<Passed> passed_;
};

}  // namespace softhca::vfio_user
