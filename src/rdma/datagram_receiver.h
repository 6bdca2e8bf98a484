// The datagrams that a UD QP receives, one packet each (IBTA 9.8.3): losses and refusals are not
// reported to the peer. Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/receive_queue.h"
#include "rdma/responder_fault.h"
#include "rdma/verdict.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

/// Functions take a request of `receives`, and count the datagram in `msn`.
class DatagramReceiver {
 public:
  DatagramReceiver(Engine& engine, QueuePair& qp, ResponderFault& fault)
      : engine_(engine), qp_(qp), fault_(fault) {}

  void receive(const wire::IbPacket& packet, const wire::Frame& frame, ReceiveQueue& receives,
               wire::Msn& msn);
  /// Fast path of receive() for a datagram from the path in `seen`. False, with no effect, if a
  /// check needs the slow path.
  bool receive_fast(const wire::TransportHeaders& headers, const wire::Frame& frame,
                    wire::SeenHeader& seen, ReceiveQueue& receives, wire::Msn& msn);

 private:
  void deliver(const wire::IbPacket& packet, const wire::Frame& frame, ReceiveQueue& receives,
               wire::Msn& msn);
  void drop(const Verdict& verdict);

  Engine& engine_;
  QueuePair& qp_;
  ResponderFault& fault_;
};

}  // namespace softhca::rdma
