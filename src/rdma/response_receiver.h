// The responses to an RC requester: acknowledgements, NAKs, READ and atomic responses (IBTA 9.7.5,
// 9.7.6). Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/request_memory.h"
#include "rdma/retransmission.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

/// `sent`: the requests that responses are about. Data of READs and atomics go to `memory`.
class ResponseReceiver {
 public:
  ResponseReceiver(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp) {}

  /// Requester::handle_answer().
  void handle(const wire::IbPacket& packet, const wire::Frame& frame, Retransmission& sent,
              RequestMemory& memory);
  /// Requester::handle_middles().
  unsigned handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count,
                          Retransmission& sent, RequestMemory& memory);

 private:
  void handle_acknowledge(std::uint64_t psn, const wire::Aeth& aeth, Retransmission& sent);
  void handle_fatal_nak(wire::NakCode code, SendQueue& queue);
  void handle_read_response(std::uint64_t psn, const wire::IbPacket& packet,
                            const wire::Frame& frame, Retransmission& sent, RequestMemory& memory);
  void handle_atomic_response(std::uint64_t psn, const wire::IbPacket& packet, Retransmission& sent,
                              RequestMemory& memory);

  Engine& engine_;
  QueuePair& qp_;
};

}  // namespace softhca::rdma
