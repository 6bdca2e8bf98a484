// Decodes the send WQEs of a QP to send requests (mlx5 driver interface 8.3, PRM 7.4.4.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/queue/send_control.h"
#include "connectx/queue/wqe_fault.h"
#include "rdma/work_request.h"

namespace softhca::connectx {

/// Properties of the QP that the decoder needs.
struct SendWqeRules {
  rdma::QpType type = rdma::QpType::kRc;
  rdma::Qpn qpn;
  bool atomics = true;     ///< the device has the capability
  bool is_signed = false;  ///< WQEs have signatures
};

/// The cookie of a request: the WQE's fields that the CQE needs.
struct SendCookie {
  std::uint16_t index = 0;
  std::uint8_t opcode = 0;
  WqeCompletion completion = WqeCompletion::CQE;
  bool ends_stale = false;  ///< the last WQE posted in SQE (QpSendQueue::restart)

  std::uint32_t pack() const {
    // no format: the device's own packing
    return index | std::uint32_t{opcode} << 16 | std::uint32_t(completion) << 24 |
           std::uint32_t{ends_stale} << 26;  // no format: own packing
  }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.index = static_cast<std::uint16_t>(cookie),
            .opcode = static_cast<std::uint8_t>(cookie >> 16),           // no format: own packing
            .completion = static_cast<WqeCompletion>(cookie >> 24 & 3),  // no format: own packing
            .ends_stale = (cookie >> 26 & 1) != 0};                      // no format: own packing
  }
};

/// Fills in `request`, except for its cookie. `request` was reset().
/// `wqe`: a copy in the device's own memory, since the guest may change its memory at any time. Its
/// size is that in the control segment.
/// `control`: parsed from `wqe`.
WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqeControl& control,
                         std::uint16_t expected_index, const SendWqeRules& rules,
                         rdma::SendRequest& request);

}  // namespace softhca::connectx
