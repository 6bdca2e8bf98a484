// The other end of a measurement that is another process, on this machine or another: what both
// say to each other over TCP, beside the HCAs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "driver/verbs/connection.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli::perf {

class Peer {
 public:
  /// Waits for the one who measures. A signal ends it, in words.
  static util::Result<Peer> listen(std::uint16_t port);
  /// Whoever listens at `host` may be late by some seconds, unless `go_on` says that it is enough.
  static util::Result<Peer> dial(const std::string& host, std::uint16_t port,
                                 const std::function<bool()>& go_on);

  /// Both say what they are about; fails in words if that is not the same.
  util::Result<void> agree(const std::string& what);
  /// Both say who they are.
  util::Result<driver::verbs::Endpoint> exchange(const driver::verbs::Endpoint& here);
  /// Goes on when both are here.
  util::Result<void> meet();
  /// To the other: it is done.
  util::Result<void> finish();
  /// Whether the other has said so. Does not wait.
  util::Result<bool> finished();

 private:
  explicit Peer(int fd) : fd_(fd) {}
  util::Result<void> send(const void* bytes, std::size_t size);
  util::Result<void> receive(void* bytes, std::size_t size);

  vfio_user::UniqueFd fd_;
};

}  // namespace softhca::cli::perf
