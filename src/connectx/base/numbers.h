// The numbers in commands, doorbells and queue entries. Each has its own type, so that a CQN in
// place of an EQN does not compile. The transport declares QPN, PD and memory key.
#pragma once

#include <cstdint>

#include "rdma/types.h"
#include "util/strong.h"

namespace softhca::connectx {

using rdma::MKey;  ///< index and variant
using rdma::Pd;
using rdma::Qpn;

/// Completion queue, 24 bits (PRM 7.12).
using Cqn = util::Strong<struct CqnTag, std::uint32_t>;
/// Event queue, 8 bits (PRM 7.13).
using Eqn = util::Strong<struct EqnTag, std::uint32_t>;
/// Send queue (PRM 7.9) and receive queue (PRM 7.7), 24 bits. QPs have numbers of the same space.
using Sqn = util::Strong<struct SqnTag, std::uint32_t>;
using Rqn = util::Strong<struct RqnTag, std::uint32_t>;
/// Transport interfaces (PRM 7.5, 7.6) and the RQ table (PRM 7.8), 24 bits.
using Tirn = util::Strong<struct TirnTag, std::uint32_t>;
using Tisn = util::Strong<struct TisnTag, std::uint32_t>;
using Rqtn = util::Strong<struct RqtnTag, std::uint32_t>;
/// A queue of receive WQEs that QPs share: an RMPN or XRC SRQN, from one number space, 24 bits.
using Srqn = util::Strong<struct SrqnTag, std::uint32_t>;
/// A user context (DevX), 16 bits: identifies the sender of a command and the owner of an object.
using Uid = util::Strong<struct UidTag, std::uint16_t>;
/// Memory of a user context (UMEM), 24 bits.
using UmemId = util::Strong<struct UmemIdTag, std::uint32_t>;
/// A doorbell page: its offset in BAR0 in units of 4 KiB (PRM 7.2).
using UarPage = util::Strong<struct UarPageTag, std::uint32_t>;
using TransportDomain = util::Strong<struct TransportDomainTag, std::uint32_t>;
using Xrcd = util::Strong<struct XrcdTag, std::uint32_t>;
/// A set of Q counters, 8 bits; 0: none.
using CounterSetId = util::Strong<struct CounterSetIdTag, std::uint32_t>;
/// A signature value (PSV), 24 bits.
using Psvn = util::Strong<struct PsvnTag, std::uint32_t>;
/// The index of a memory key, without the variant byte (PRM 6).
using MKeyIndex = util::Strong<struct MKeyIndexTag, std::uint32_t>;
/// Flow table and, inside one, flow group (PRM 7.11), 24 and 32 bits.
using FlowTableId = util::Strong<struct FlowTableIdTag, std::uint32_t>;
using FlowGroupId = util::Strong<struct FlowGroupIdTag, std::uint32_t>;
/// A counter for the packets of flows (PRM 7.11.2.8), 16 bits.
using FlowCounterId = util::Strong<struct FlowCounterIdTag, std::uint32_t>;

/// Entries of the port's P_Key table: pkey_table_size 0. On RoCE, all except the first are empty.
inline constexpr std::uint32_t kPkeys = 128;

}  // namespace softhca::connectx
