// The peer of a measurement in another process, on this machine or another: the TCP connection by
// which both coordinate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "driver/verbs/connection.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::perf {

class Peer {
 public:
  /// Waits for the measuring process. A signal makes it fail with a message.
  static util::Result<Peer> listen(std::uint16_t port);
  /// Retries for some seconds until `host` listens, unless `go_on` returns false.
  static util::Result<Peer> dial(const std::string& host, std::uint16_t port,
                                 const std::function<bool()>& go_on);

  /// Exchanges descriptions of the measurement. Fails with a message if they differ.
  util::Result<void> agree(const std::string& what);
  /// Exchanges endpoints.
  util::Result<driver::verbs::Endpoint> exchange(const driver::verbs::Endpoint& here);
  /// Returns when both processes have called it.
  util::Result<void> meet();
  /// Notifies the peer that the measurement is done.
  util::Result<void> finish();
  /// Whether the peer has called finish(). Never blocks.
  util::Result<bool> finished();

 private:
  explicit Peer(int fd) : fd_(fd) {}
  util::Result<void> send(const void* bytes, std::size_t size);
  util::Result<void> receive(void* bytes, std::size_t size);

  os::UniqueFd fd_;
};

}  // namespace softhca::perf
