// From two queue pairs to a connection: what each end tells the other, and the states on the way.
//
//   in one process:   connect(qp_a, qp_b);
//   over a socket:    send_endpoint(fd, describe(qp));
//                     connect(qp, receive_endpoint(fd).value());        both ends do the same
//
// It is what a connection manager does, without one: no QP1, no MAD; the socket is the program's.
#pragma once

#include <cstdint>
#include <string>

#include "driver/verbs/queue_pair.h"
#include "util/result.h"

namespace softhca::driver::verbs {

/// One end of a connection, as the other has to know it.
struct Endpoint {
  QpType type = QpType::kRc;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;   ///< of its first packet
  std::uint32_t qkey = 0;  ///< UD
  Gid gid = {};
  Mac mac = {};
  std::uint16_t lid = 0;
  unsigned path_mtu = 1024;  ///< bytes; the smaller of both counts
  unsigned reads = 16;       ///< READs and atomics that it answers at a time
  // Memory that it offers, if any: where one-sided operations may begin.
  std::uint64_t address = 0;
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t rkey = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct ConnectionOptions {
  unsigned path_mtu = 1024;  ///< 256, 512, 1024, 2048 or 4096 bytes
  RemoteAccess access = {};
  std::uint8_t timeout = 14;  ///< 4.096 us * 2^n; 0: never
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;       ///< 7: for ever
  std::uint8_t min_rnr_timer = 12;  ///< the code of IBTA 9.7.5.2.8 (12: 0.64 ms)
  unsigned reads = 16;              ///< READs and atomics under way, either way
  std::uint32_t qkey = 0x11111111;  ///< UD
  std::uint8_t gid_index = 0;
  /// Offered to the peer in describe().
  const MemoryRegion* memory = nullptr;
};

/// What `qp` is to its peer. The first PSN is made from the QPN.
Endpoint describe(const QueuePair& qp, const ConnectionOptions& options = {});
/// The way to `peer`.
Path path_to(const Endpoint& peer, std::uint8_t gid_index = 0);

/// RESET to RTS: `qp` and `peer` are connected once the peer has done the same with describe(qp). A
/// UD queue pair needs no peer to be brought there: activate().
util::Result<void> connect(QueuePair& qp, const Endpoint& peer,
                           const ConnectionOptions& options = {});
/// Both ends.
util::Result<void> connect(QueuePair& a, QueuePair& b, const ConnectionOptions& options = {});
/// UD: RESET to RTS.
util::Result<void> activate(QueuePair& qp, const ConnectionOptions& options = {});

// The steps of connect(), for who wants to stop on the way.
util::Result<void> to_init(QueuePair& qp, const ConnectionOptions& options = {});
util::Result<void> to_rtr(QueuePair& qp, const Endpoint& peer,
                          const ConnectionOptions& options = {});
util::Result<void> to_rts(QueuePair& qp, const Endpoint& peer,
                          const ConnectionOptions& options = {});

// On a socket: 80 bytes, big-endian. What comes is checked; a peer that speaks something else is
// told from one that has gone.
util::Result<void> send_endpoint(int fd, const Endpoint& endpoint);
util::Result<Endpoint> receive_endpoint(int fd);

/// A TCP connection to the program that accepts at `host`:`port`.
util::Result<int> dial(const std::string& host, std::uint16_t port);
/// Waits for one TCP connection, or for a signal that the program handles: then it fails. Both ends
/// close what they are given.
util::Result<int> accept_one(std::uint16_t port);

}  // namespace softhca::driver::verbs
