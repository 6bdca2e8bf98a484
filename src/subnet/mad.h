// Management datagrams as packets (IBTA 13.4, 14.2.1): 256 bytes in a UD packet to QP0 or QP1.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "spec/infiniband/mad.h"
#include "wire/frame.h"
#include "wire/ids.h"

namespace softhca::subnet {

using wire::Lid;
using wire::Qpn;
using Smp = spec::infiniband::smp;
using SaMad = spec::infiniband::sa_mad;
using Method = spec::infiniband::mad_method;
using MadClass = spec::infiniband::mad_class;
using MadStatus = spec::infiniband::mad_status;

/// A MAD without packet headers.
using Mad = std::array<std::byte, Smp::kSize>;

inline constexpr Qpn kSmiQpn{0};
inline constexpr Lid kPermissive{spec::infiniband::kPermissiveLid};

/// Addresses of a MAD.
struct MadRoute {
  Lid source;
  Lid destination;
  Qpn source_qpn;
  Qpn destination_qpn;
};

/// The route of the response.
inline MadRoute reversed(const MadRoute& route) {
  return {route.destination, route.source, route.destination_qpn, route.source_qpn};
}

/// Writes a packet without GRH that owns its payload. To QP0: virtual lane 15, Q_Key 0. To QP1:
/// lane 0 and the well-known Q_Key (IBTA 13.5.1, 10.2.5).
void write_mad(const Mad& mad, const MadRoute& route, wire::Frame& frame);

struct ArrivedMad {
  Mad mad;
  MadRoute route;
};

/// Checks the Q_Key. Nothing if the packet is no MAD, or addresses another QP.
std::optional<ArrivedMad> read_mad(const wire::Frame& frame);

/// True if the packet's destination is QP0, at any port.
bool is_for_smi(const wire::Frame& frame);

}  // namespace softhca::subnet
