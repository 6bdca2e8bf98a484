// Send WQEs (JingZhao 3.4): from units to a send request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/numbers.h"
#include "jingzhao/wqe_fault.h"
#include "rdma/work_request.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao {

/// A WQE to be executed: what the doorbell says of the first of a chain, and the next unit of each
/// of the one after it.
struct SendWqe {
  std::uint32_t place = 0;  ///< in the SQ, in units of 16 bytes
  std::uint8_t opcode = 0;  ///< wqe_opcode
  std::uint8_t units = 0;   ///< its size in 16 bytes
  bool fence = false;
  bool stale = false;  ///< was posted in SQE
};

/// What the decoder must know of a QP.
struct SendRules {
  wire::Link link = wire::Link::kEthernet;
  rdma::QpType type = rdma::QpType::kRc;
  std::uint64_t message_max = std::uint64_t{1} << 31;  ///< bytes
};

/// Cookie of a request: all that its CQE needs of the WQE.
struct SendCookie {
  std::uint32_t place = 0;  ///< in the SQ, in units of 16 bytes; below 2^26
  std::uint8_t opcode = 0;  ///< wqe_opcode, 5 bits

  // no format: the device's own packing
  std::uint32_t pack() const { return place | std::uint32_t{opcode} << 26; }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.place = cookie & ((1u << 26) - 1),
            .opcode = static_cast<std::uint8_t>(cookie >> 26)};  // no format: as packed above
  }
};

/// Fills in `request`, which was reset(), but for its cookie. `wqe` is a copy in the device's own
/// memory (software may change its own at any time), of `what.units` * 16 bytes.
WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqe& what,
                         const SendRules& rules, rdma::SendRequest& request);

/// Data units, up to the end of `units` or to what ends a receive WQE. False: too many.
bool decode_scatter_list(std::span<const std::byte> units, std::vector<rdma::Sge>& sges);

}  // namespace softhca::jingzhao
