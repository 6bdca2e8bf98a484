// The datagrams that a UD QP receives, one packet each (IBTA 9.8.3): losses and refusals are not
// reported to the peer. Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/receive_queue.h"
#include "rdma/request_outcome.h"
#include "rdma/responder_fault.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class DatagramReceiver {
 public:
  DatagramReceiver(Engine& engine, QueuePair& qp, ResponderFault& fault)
      : engine_(engine), qp_(qp), fault_(fault) {}

  /// Receives a datagram into the next request of `receives`, and counts it in `msn`.
  void receive(const wire::IbPacket& packet, const wire::Frame& frame, ReceiveQueue& receives,
               wire::Msn& msn);
  /// Drops a datagram for which no receive request could be taken.
  void drop(const RequestOutcome& outcome);

 private:
  void deliver(const wire::IbPacket& packet, const wire::Frame& frame, ReceiveQueue& receives,
               wire::Msn& msn);

  Engine& engine_;
  QueuePair& qp_;
  ResponderFault& fault_;
};

}  // namespace softhca::rdma
