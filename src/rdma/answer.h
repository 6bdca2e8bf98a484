// A READ or atomic that awaits its response. Internal.
#pragma once

#include <cstdint>

#include "rdma/types.h"
#include "wire/serial24.h"

namespace softhca::rdma {

struct Answer {
  wire::Psn next;          ///< PSN of the next response packet to send
  std::uint32_t left = 0;  ///< response packets still to send
  bool atomic = false;
  bool repeated = false;  ///< answers a duplicate request
  bool begun = false;     ///< a response packet has been sent
  wire::Msn msn;
  Pd pd;
  MKey rkey;
  std::uint64_t address = 0;   ///< address of the first byte not sent yet
  std::uint32_t length = 0;    ///< bytes not sent yet
  std::uint64_t original = 0;  ///< atomic: memory contents before it

  /// True if its response still has a packet with this PSN.
  bool covers(wire::Psn psn) const { return psn.before(next + left) && !psn.before(next); }
};

}  // namespace softhca::rdma
