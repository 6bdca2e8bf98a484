// Management datagrams on their way (IBTA 13.4, 14.2.1): 256 bytes in a packet of UD, to QP0 or
// QP1.
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

/// One without its headers.
using Mad = std::array<std::byte, Smp::kSize>;

inline constexpr Qpn kSmiQpn{0};
inline constexpr Lid kPermissive{spec::infiniband::kPermissiveLid};

/// From where to where.
struct MadRoute {
  Lid source;
  Lid destination;
  Qpn source_qpn;
  Qpn destination_qpn;
};

/// The way back.
inline MadRoute reversed(const MadRoute& route) {
  return {route.destination, route.source, route.destination_qpn, route.source_qpn};
}

/// A packet without GRH: to QP0 on virtual lane 15 with Q_Key 0, to QP1 on lane 0 with the
/// well-known one (IBTA 13.5.1, 10.2.5). It owns its payload.
void write_mad(const Mad& mad, const MadRoute& route, wire::Frame& frame);

struct ArrivedMad {
  Mad mad;
  MadRoute route;
};

/// The Q_Key is checked. Nothing: the packet is none, or for another QP.
std::optional<ArrivedMad> read_mad(const wire::Frame& frame);

/// Whether the packet goes to QP0 of whoever gets it.
bool is_for_smi(const wire::Frame& frame);

}  // namespace softhca::subnet
