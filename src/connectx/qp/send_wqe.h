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
  bool atomics = true;                ///< the capability is on
  std::uint8_t log_message_max = 30;  ///< bytes
  bool is_signed = false;             ///< WQEs have signatures
};

/// Cookie of a request: all that its CQE needs of the WQE.
struct SendCookie {
  std::uint16_t index = 0;
  std::uint8_t opcode = 0;
  bool event = false;

  std::uint32_t pack() const {
    // no format: the device's own packing
    return index | std::uint32_t{opcode} << 16 | std::uint32_t{event} << 24;
  }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.index = static_cast<std::uint16_t>(cookie),
            .opcode = static_cast<std::uint8_t>(cookie >> 16),  // no format: as packed above
            .event = (cookie >> 24 & 1) != 0};                  // no format: likewise
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
