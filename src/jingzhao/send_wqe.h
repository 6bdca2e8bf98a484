// Decoding of send WQEs (JingZhao 3.4) into send requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/numbers.h"
#include "jingzhao/wqe_fault.h"
#include "rdma/work_request.h"
#include "spec/infiniband/constants.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao {

/// Bytes of a unit, in which WQEs are counted.
inline constexpr std::uint32_t kUnit = spec::jingzhao::next_unit::kSize;

/// A WQE to execute, as described by the doorbell (for the first of a chain) or by the next unit of
/// its predecessor.
struct SendWqe {
  std::uint32_t place = 0;  ///< position in the SQ, in units of 16 bytes
  std::uint8_t opcode = 0;  ///< wqe_opcode
  std::uint8_t units = 0;   ///< its size, in units of 16 bytes
  bool fence = false;
  bool stale = false;  ///< was posted in SQE
};

/// The properties of a QP that the decoder needs.
struct SendRules {
  wire::Link link = wire::Link::kEthernet;
  rdma::QpType type = rdma::QpType::kRc;
  std::uint64_t message_max = std::uint64_t{1} << 31;   ///< bytes
  std::uint32_t qpn_mask = spec::infiniband::kQpnMask;  ///< bits of `dqpn` that count
};

/// Cookie of a request: the WQE's data for the CQE.
struct SendCookie {
  std::uint32_t place = 0;  ///< position in the SQ, in units of 16 bytes; below 2^26
  std::uint8_t opcode = 0;  ///< wqe_opcode, 5 bits

  // no format: the device's own packing
  std::uint32_t pack() const { return place | std::uint32_t{opcode} << 26; }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.place = cookie & ((1u << 26) - 1),
            .opcode = static_cast<std::uint8_t>(cookie >> 26)};  // no format: as packed above
  }
};

/// Fills in a `request` that was reset(), except for its cookie. `wqe`: `what.units` * 16 bytes in
/// a copy of the device's own, since software may change the original at any time.
WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqe& what,
                         const SendRules& rules, rdma::SendRequest& request);

/// Decodes data units up to the end of `units` or up to the terminator of a receive WQE. False if
/// there are too many.
bool decode_scatter_list(std::span<const std::byte> units, std::vector<rdma::Sge>& sges);

}  // namespace softhca::jingzhao
