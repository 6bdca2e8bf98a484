// Memory that is not there yet: on-demand paging.
//
// A page of a key whose list work requests write may be absent. Who meets it waits, the device
// tells its driver, and goes on when the driver says so.
#pragma once

#include <cstdint>

#include "rdma/types.h"
#include "rdma/xrc_srqs.h"

namespace softhca::rdma {

/// What met the page: which work queue entry, or which access of a peer.
enum class PageFaultKind : std::uint8_t {
  kSend,          ///< payload of a SEND, RDMA WRITE or datagram
  kReadOrAtomic,  ///< the place for what a READ or atomic brings
  kReceive,       ///< the buffer of a receive request
  kRemoteRead,    ///< of a peer's READ
  kRemoteWrite,   ///< of a peer's RDMA WRITE or atomic
};

struct PageFault {
  PageFaultKind kind;
  std::uint32_t cookie = 0;  ///< of the work request; kSend to kReceive
  XrcSrqn srqn{};            ///< XRC: where the receive request is from
  /// Bytes of the message that are done.
  std::uint32_t committed = 0;
  std::uint32_t packet_length = 0;  ///< bytes that the packet needs; responder
  MKey rkey{};                      ///< remote accesses, as the two that follow
  std::uint64_t address = 0;        ///< first of the message
  std::uint32_t length = 0;         ///< bytes of the message
};

/// Which half of a QP waits for a page: each for one at a time.
enum class FaultSide : std::uint8_t { kRequester, kResponder };

/// What a device says to a fault.
enum class FaultAnswer : std::uint8_t {
  kOpened,  ///< Transport::resume() follows, or the QP leaves its state
  kBusy,    ///< too many are open: it is to be told again later
  kNobody,  ///< no driver listens: the access is refused
};

}  // namespace softhca::rdma
