// A management datagram, and a received one with its addresses.
#pragma once

#include <array>
#include <cstddef>

#include "wire/gid.h"

namespace softhca::cm {

/// A header of 24 bytes and its data (IBTA 13.4.2).
using Mad = std::array<std::byte, 256>;

/// A received datagram with its source and destination.
struct Arrival {
  Mad mad{};
  wire::Gid from, to;
};

/// A received datagram, and the port that received it.
struct Received : Arrival {
  unsigned port;  ///< port index
};

}  // namespace softhca::cm
