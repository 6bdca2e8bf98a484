// Number types and limits of a JingZhao HCA: the values of QUERY_DEV_LIM.
//
// The document defines the fields without values; these are the RTL's (docs/jingzhao.md).
#pragma once

#include <cstdint>

#include "rdma/types.h"
#include "util/strong.h"

namespace softhca::jingzhao {

using rdma::Qpn;
using Cqn = util::Strong<struct CqnTag, std::uint32_t>;
using Eqn = util::Strong<struct EqnTag, std::uint32_t>;

namespace limits {

inline constexpr unsigned kLogReservedQps = 1;  ///< QP0 and QP1 of the port
inline constexpr unsigned kLogQpSize = 13;      ///< log2 of the WQEs of a queue
inline constexpr unsigned kLogCqSize = 13;      ///< log2 of the CQEs of a CQ
inline constexpr unsigned kLogEqSize = 13;      ///< log2 of the EQEs of an EQ; the document has no
                                                ///< field for it
inline constexpr unsigned kLogQps = 14;
inline constexpr unsigned kLogCqs = 13;
inline constexpr unsigned kLogEqs = 5;
inline constexpr unsigned kLogMpts = 14;
inline constexpr unsigned kLogPds = 12;
inline constexpr unsigned kLogPkeys = 1;
inline constexpr std::uint16_t kPkeys = 1u << kLogPkeys;
inline constexpr std::uint32_t kMttSize = 8;  ///< bytes, like all entry sizes
inline constexpr std::uint32_t kQpcSize = 256;
inline constexpr std::uint32_t kCqcSize = 128;
inline constexpr std::uint32_t kEqcSize = 64;
inline constexpr std::uint32_t kMptSize = 64;
inline constexpr unsigned kMaxMtu = 5;  ///< 4096
inline constexpr unsigned kMaxVl = 15;
inline constexpr unsigned kLogMinPage = 12;
inline constexpr unsigned kMaxSges = 16;
inline constexpr std::uint32_t kLogMaxWqe = 9;
inline constexpr std::uint32_t kMaxWqe = 1u << kLogMaxWqe;  ///< bytes of a descriptor
inline constexpr std::uint64_t kMaxIcm = std::uint64_t{1} << 32;
/// Bytes of the largest SQ or RQ, with WQEs of maximum size.
inline constexpr std::uint32_t kMaxQueue = kMaxWqe << kLogQpSize;
/// Most pages of one memory region. Larger regions need larger pages.
inline constexpr std::uint64_t kMaxPages = std::uint64_t{1} << 18;
/// Most pages of all cached regions: 32 MiB of addresses, whatever a guest registers.
inline constexpr std::uint64_t kMaxCachedPages = std::uint64_t{1} << 22;
/// Most READs and atomics in flight per QP, in each direction.
inline constexpr std::uint32_t kReadsInFlight = 16;

}  // namespace limits

}  // namespace softhca::jingzhao
