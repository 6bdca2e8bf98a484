// An unreliable datagram queue pair (IBTA 9.8.3): each request names its destination.
//
//   create -> activate (to_init, to_rtr, to_rts) -> post_send, post_receive -> to_error, to_reset
//
// A received datagram has 40 bytes in front: the GRH, or the IP header in their last bytes (IBTA
// 11.4.1.2, Annex A17). A receive must have room for them; Completion::byte_count counts them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/connectx/datagram.h"
#include "driver/connectx/queue_pair_base.h"

namespace softhca::driver::connectx {

class DatagramQueuePair final : public QueuePairBase {
 public:
  /// Bytes in front of a received datagram.
  static constexpr std::size_t kHeader = 40;

  static util::Result<std::unique_ptr<DatagramQueuePair>> create(ProtectionDomain& pd,
                                                                 const Options& options);
  /// The port's QP1, which receives management datagrams (IBTA 10.2.4.4). Its Q_Key is
  /// kManagementKey.
  static util::Result<std::unique_ptr<DatagramQueuePair>> create_management(ProtectionDomain& pd,
                                                                            const Options& options);
  static constexpr std::uint32_t kManagementKey = 0x80010000;

  // States -------------------------------------------------------------------------------------

  /// RESET to INIT: receives may be posted. `qkey`: the Q_Key that received datagrams must carry.
  util::Result<void> to_init(std::uint32_t qkey);
  /// INIT to RTR: datagrams are received.
  util::Result<void> to_rtr();
  /// RTR to RTS: requests are sent.
  util::Result<void> to_rts();
  /// SQ error to RTS, after a send that completed in error (IBTA 10.3.1.6).
  util::Result<void> resume();
  /// All three transitions to RTS.
  util::Result<void> activate(std::uint32_t qkey);

  // Work ---------------------------------------------------------------------------------------
  // These neither allocate nor make system calls.

  /// Posts a SEND, with or without immediate data; `address` is an AddressVector's form().
  PostStatus post_send(const SendRequest& request);

 private:
  DatagramQueuePair(ProtectionDomain& pd, const Options& options, spec::service_type service)
      : QueuePairBase(pd, options, service, SendQueue::blocks_per_datagram(options.send)) {}
};

}  // namespace softhca::driver::connectx
