// Datagrams (IBTA 9.8.3): one packet for each request, without acknowledgements. Internal.
#pragma once

#include <cstdint>

#include "rdma/request_memory.h"
#include "rdma/send_queue.h"
#include "rdma/work_request.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

class Datagrams {
 public:
  Datagrams(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp) {}

  /// True if the last datagram had the same destination. `generation`: that of the addresses.
  bool leads_to(const UdDestination& to, std::uint32_t generation) const {
    return generation_ == generation && to_ == to;
  }
  /// Chooses the destination of the next datagram, or returns why the port cannot reach it.
  Reason choose(const UdDestination& to);
  /// Sends a datagram to the chosen destination. kNone, or why its payload cannot be read.
  Reason send(SendEntry& entry, RequestMemory& memory);
  /// Fast path of send(), with the fetch: for short datagrams to the last destination, with `queue`
  /// empty. Their frames hold a copy, so each completes as soon as it is sent. Returns the number
  /// sent; requests behind them may be of any kind.
  unsigned send_fast(SendQueue& queue, RequestMemory& memory, unsigned quota);

 private:
  Engine& engine_;
  QueuePair& qp_;
  UdDestination to_;              ///< of the last datagram
  std::uint32_t generation_ = 0;  ///< generation of the addresses; 0: header_ is not set
  wire::IbHeader header_;
};

}  // namespace softhca::rdma
