// A reliable connected queue pair.
//
//   create -> connect (to_init, to_rtr, to_rts) -> post_send, post_receive -> to_error, to_reset
//
// Completions arrive in the completion queues given to create().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/access.h"
#include "driver/address.h"
#include "driver/connectx/queue_pair_base.h"
#include "spec/infiniband/constants.h"

namespace softhca::driver::connectx {

using driver::RemoteAccess;

/// The other end of a connection, as the program learned it by other means.
struct RemoteQueuePair {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  ///< of its first packet
  Gid gid;
  Mac mac;
};

/// Parameters on which both ends should agree, and limits of this end (names of IBTA 11.2.4.2).
struct Connection {
  std::uint32_t psn = 0;              ///< of the first packet sent
  unsigned path_mtu = 1024;           ///< 256, 512, 1024, 2048 or 4096
  std::uint8_t source_gid_index = 0;  ///< entry of the RoCE address table
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint16_t udp_source_port = softhca::spec::infiniband::kUdpSourcePort;
  unsigned log_reads_as_requester = 4;  ///< outstanding reads and atomics, as a power of two
  unsigned log_reads_as_responder = 4;
  std::uint8_t ack_timeout = 14;  ///< 4.096 us * 2^n; 0: no timeout
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;       ///< 7: no limit
  std::uint8_t min_rnr_timer = 12;  ///< code of the RNR NAK timer field (12: 0.64 ms)
};

class QueuePair final : public QueuePairBase {
 public:
  static util::Result<std::unique_ptr<QueuePair>> create(ProtectionDomain& pd,
                                                         const Options& options);

  // States -------------------------------------------------------------------------------------

  /// RESET to INIT: receives may be posted.
  util::Result<void> to_init(RemoteAccess access);
  /// INIT to RTR: packets of `remote` are received.
  util::Result<void> to_rtr(const RemoteQueuePair& remote, const Connection& connection);
  /// RTR to RTS: requests are sent.
  util::Result<void> to_rts(const Connection& connection);
  /// All three transitions.
  util::Result<void> connect(const RemoteQueuePair& remote, const Connection& connection,
                             RemoteAccess access);
  util::Result<void> connect(const RemoteQueuePair& remote, const Connection& connection) {
    return connect(remote, connection, RemoteAccess());
  }

  // Work ---------------------------------------------------------------------------------------
  // These neither allocate nor make system calls.

  PostStatus post_send(const SendRequest& request);
  /// Posts in order and rings the doorbell once. Returns how many were posted; `status` is that of
  /// the first request that was not.
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status);

 private:
  QueuePair(ProtectionDomain& pd, const Options& options)
      : QueuePairBase(pd, options, spec::service_type::RC,
                      SendQueue::blocks_per_request(options.send)) {}

  RemoteAccess access_;
};

}  // namespace softhca::driver::connectx
