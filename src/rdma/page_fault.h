// Absent pages: on-demand paging.
//
// A page of a key whose page list work requests write may be absent. The accessor waits, the device
// notifies its driver, and the access continues when the driver says so.
#pragma once

#include <cstdint>

#include "rdma/types.h"
#include "rdma/xrc_srqs.h"

namespace softhca::rdma {

/// The access that hit an absent page: a local WQE, or a request of the peer.
enum class PageFaultKind : std::uint8_t {
  kSend,          ///< payload of a SEND, RDMA WRITE or datagram
  kReadOrAtomic,  ///< destination of a READ or atomic
  kReceive,       ///< the buffer of a receive request
  kRemoteRead,    ///< READ of the peer
  kRemoteWrite,   ///< RDMA WRITE or atomic of the peer
};

struct PageFault {
  PageFaultKind kind;
  std::uint32_t cookie = 0;  ///< of the work request; kSend to kReceive only
  XrcSrqn srqn{};            ///< XRC: the SRQ of the receive request
  /// Bytes of the message already done.
  std::uint32_t committed = 0;
  std::uint32_t packet_length = 0;  ///< responder only: bytes that the packet accesses
  MKey rkey{};                      ///< remote accesses only, as are address and length
  std::uint64_t address = 0;        ///< start address of the message
  std::uint32_t length = 0;         ///< bytes of the message
};

/// The half of a QP that waits for a page; each waits for one at a time.
enum class FaultSide : std::uint8_t { kRequester, kResponder };

/// The device's answer to a fault.
enum class FaultAnswer : std::uint8_t {
  kOpened,  ///< Transport::resume() will follow, unless the QP leaves its state
  kBusy,    ///< too many faults are open: report it again later
  kNobody,  ///< no driver handles faults: the access is refused
};

}  // namespace softhca::rdma
