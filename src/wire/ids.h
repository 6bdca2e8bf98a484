// Numbers of InfiniBand headers, as distinct types.
#pragma once

#include <cstdint>

#include "spec/infiniband/constants.h"
#include "util/strong.h"

namespace softhca::wire {

/// Queue pair number, 24 bits.
using Qpn = util::Strong<struct QpnTag, std::uint32_t>;
/// Local identifier of a port in its subnet, or of a multicast group (IBTA 4.1.3).
using Lid = util::Strong<struct LidTag, std::uint16_t>;
/// Remote memory key (IBTA 10.6.3.2).
using RKey = util::Strong<struct RKeyTag, std::uint32_t>;
/// Queue key (IBTA 10.2.5).
using QKey = util::Strong<struct QKeyTag, std::uint32_t>;
/// XRC shared receive queue number, 24 bits (IBTA Annex A14).
using XrcSrqn = util::Strong<struct XrcSrqnTag, std::uint32_t>;

/// IBTA 3.9.1: the general services interface of a port.
inline constexpr Qpn kGsiQpn{spec::infiniband::kGsiQpn};
/// IBTA 10.5: the destination of multicast packets.
inline constexpr Qpn kMulticastQpn{spec::infiniband::kMulticastQpn};

}  // namespace softhca::wire
