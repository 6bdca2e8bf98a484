// Output to a client's socket. The loop never waits for a client that does not read: bytes that the
// socket does not accept are queued here.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

class Outgoing {
 public:
  /// Sends on `socket`, and queues what the socket does not accept. `fds` must stay open until they
  /// are sent. False if the peer is gone.
  bool send(int socket, const protocol::Header& header, std::span<const std::byte> first,
            std::span<const std::byte> second, std::span<const int> fds);
  /// Sends as much queued output as the socket accepts. False if the peer is gone.
  bool flush(int socket);
  bool empty() const { return bytes_.empty(); }

 private:
  /// Descriptors are sent with the first byte of their message.
  struct Passed {
    std::size_t at;  ///< offset in bytes_
    std::vector<int> fds;
  };

  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;  ///< bytes of bytes_ already sent
  std::deque<Passed> passed_;
};

}  // namespace softhca::vfio_user
