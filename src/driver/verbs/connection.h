// Connects two queue pairs: the parameters that the ends exchange, and the states on the way.
//
//   in one process:   connect(qp_a, qp_b);
//   over a socket:    send_endpoint(fd, describe(qp));
//                     connect(qp, receive_endpoint(fd).value());        both ends do the same
//
// It replaces a connection manager: no QP1, no MAD; the program provides the socket.
#pragma once

#include <cstdint>
#include <string>

#include "driver/verbs/queue_pair.h"
#include "util/result.h"

namespace softhca::driver::verbs {

/// One end of a connection, as the other end must know it.
struct Endpoint {
  QpType type = QpType::kRc;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;   ///< of the first packet that it sends
  std::uint32_t qkey = 0;  ///< UD
  Gid gid = {};
  Mac mac = {};
  std::uint16_t lid = 0;
  unsigned path_mtu = 1024;  ///< bytes; the smaller of both ends' values is used
  unsigned reads = 16;       ///< READs and atomics that it serves at a time
  // Memory offered for one-sided operations, if any.
  std::uint64_t address = 0;
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t rkey = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct ConnectionOptions {
  unsigned path_mtu = 1024;  ///< 256, 512, 1024, 2048 or 4096 bytes
  RemoteAccess access = {};
  std::uint8_t timeout = 14;  ///< 4.096 us * 2^n; 0: no timeout
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;       ///< 7: no limit
  std::uint8_t min_rnr_timer = 12;  ///< the code of IBTA 9.7.5.2.8 (12: 0.64 ms)
  unsigned reads = 16;              ///< READs and atomics under way, in each direction
  std::uint32_t qkey = 0x11111111;  ///< UD
  std::uint8_t gid_index = 0;
  /// Memory to offer to the peer in describe().
  const MemoryRegion* memory = nullptr;
};

/// Describes `qp` for its peer. The first PSN is derived from the QPN.
Endpoint describe(const QueuePair& qp, const ConnectionOptions& options = {});
Path path_to(const Endpoint& peer, std::uint8_t gid_index = 0);

/// RESET to RTS. `qp` and `peer` are connected when the peer has done the same with describe(qp). A
/// UD queue pair needs no peer: use activate().
util::Result<void> connect(QueuePair& qp, const Endpoint& peer,
                           const ConnectionOptions& options = {});
/// Connects both ends.
util::Result<void> connect(QueuePair& a, QueuePair& b, const ConnectionOptions& options = {});
/// UD: RESET to RTS.
util::Result<void> activate(QueuePair& qp, const ConnectionOptions& options = {});

// The steps of connect(), for a program that stops in between.
util::Result<void> to_init(QueuePair& qp, const ConnectionOptions& options = {});
util::Result<void> to_rtr(QueuePair& qp, const Endpoint& peer,
                          const ConnectionOptions& options = {});
util::Result<void> to_rts(QueuePair& qp, const Endpoint& peer,
                          const ConnectionOptions& options = {});

// Exchange over a socket: 80 bytes, big-endian. The received bytes are checked; the error
// distinguishes a peer with another format from one that has closed the connection.
util::Result<void> send_endpoint(int fd, const Endpoint& endpoint);
util::Result<Endpoint> receive_endpoint(int fd);

/// Opens a TCP connection to the program that accepts at `host`:`port`.
util::Result<int> dial(const std::string& host, std::uint16_t port);
/// Waits for one TCP connection; a signal that the program handles makes it fail. The caller closes
/// the descriptor that dial() or accept_one() returns.
util::Result<int> accept_one(std::uint16_t port);

}  // namespace softhca::driver::verbs
