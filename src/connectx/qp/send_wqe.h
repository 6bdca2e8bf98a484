// Send WQEs of a QP (mlx5 driver interface 8.3, PRM 7.4.4.1): from bytes to a send request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/queue/send_control.h"
#include "connectx/queue/wqe_fault.h"
#include "rdma/work_request.h"

namespace softhca::connectx {

/// What the decoder must know of a QP.
struct SendWqeRules {
  rdma::QpType type = rdma::QpType::kRc;
  rdma::Qpn qpn;
  bool atomics = true;     ///< the capability is on
  bool is_signed = false;  ///< WQEs have signatures
};

/// Cookie of a request: all that its CQE needs of the WQE.
struct SendCookie {
  std::uint16_t index = 0;
  std::uint8_t opcode = 0;
  WqeCompletion completion = WqeCompletion::CQE;
  bool ends_stale = false;  ///< the last of those that were posted in SQE (Rdma::restart_send)

  std::uint32_t pack() const {
    // no format: the device's own packing
    return index | std::uint32_t{opcode} << 16 | std::uint32_t(completion) << 24 |
           std::uint32_t{ends_stale} << 26;  // no format: likewise
  }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.index = static_cast<std::uint16_t>(cookie),
            .opcode = static_cast<std::uint8_t>(cookie >> 16),           // no format: likewise
            .completion = static_cast<WqeCompletion>(cookie >> 24 & 3),  // no format: likewise
            .ends_stale = (cookie >> 26 & 1) != 0};                      // no format: likewise
  }
};

/// Fills in `request`, which was reset(), but for its cookie. `wqe` is a copy in the device's own
/// memory (the guest may change its own at any time), of exactly the size that the control segment
/// tells.
/// `control`: parsed from it.
WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqeControl& control,
                         std::uint16_t expected_index, const SendWqeRules& rules,
                         rdma::SendRequest& request);

}  // namespace softhca::connectx
