// Congestion notification packets of a port (IBTA Annex A17 17.9.3): marked packets cause CNPs, and
// CNPs slow QPs down (congestion.h). Internal.
#pragma once

#include "rdma/engine.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

/// A router has marked a packet to the QP: sends a CNP to the packet's sender, if one is due.
void notice_mark(Engine& engine, const QueuePair& qp, const wire::IbPacket& packet);
/// A CNP for the QP has arrived.
void handle_cnp(Engine& engine, QueuePair& qp, const wire::IbPacket& packet);

}  // namespace softhca::rdma
