// Send WQEs of a QP (mlx5 driver interface 8.3, PRM 7.4.4.1): from bytes to a send request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rdma/work_request.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/wqe.h"

namespace softhca::connectx {

/// Send WQEs lie in basic blocks of 64 bytes and are counted by them.
inline constexpr std::size_t kWqeBasicBlock = 64;
/// Sizes are told in units of 16 bytes, in 6 bits.
inline constexpr std::size_t kWqeUnit = 16;
inline constexpr std::size_t kSendWqeMax = 64 * kWqeUnit;

/// What is wrong with a WQE: this device's part of the numbers of rdma::Reason, 1 to 127. The
/// number is the vendor syndrome of its error CQE, so it stays as it is.
enum class WqeFault : std::uint8_t {
  kNone = 0,
  kSizeZero = 1,
  kPastPosted = 2,
  kWrongIndex = 3,
  kWrongQpn = 4,
  kUnknownOpcode = 5,
  kOpcodeForService = 6,
  kMaskedAtomic = 7,
  kMemoryKeyUpdate = 8,
  kNoRemoteAddress = 9,
  kNoAtomicOperands = 10,
  kNoAddressVector = 11,
  kShortAddressVector = 12,
  kInlineForRead = 13,
  kInlineTooLong = 14,
  kMixedPayload = 15,
  kAtomicLength = 16,
  kMessageTooLong = 17,
  kAtomicsOff = 18,
  kNoXrcSegment = 19,
};

struct WqeFaultInfo {
  WqeFault fault;
  std::string_view text;
  std::string_view section;
};
const WqeFaultInfo& describe(WqeFault fault);
constexpr rdma::Reason reason_of(WqeFault fault) { return static_cast<rdma::Reason>(fault); }

/// What the decoder must know of a QP.
struct SendWqeRules {
  rdma::QpType type = rdma::QpType::kRc;
  rdma::Qpn qpn;
  bool atomics = true;                ///< the capability is on
  std::uint8_t log_message_max = 30;  ///< bytes
};

/// The control segment, which every WQE begins with.
struct SendWqeControl {
  std::uint16_t index;
  spec::connectx::wqe_opcode opcode;  ///< may be none of the enumeration
  rdma::Qpn qpn;
  std::uint32_t units;  ///< of 16 bytes, with the control segment; 0 is a fault
  bool signaled;
  bool event;  ///< the CQE counts as solicited

  /// @pre wqe.size() >= 16
  static SendWqeControl parse(std::span<const std::byte> wqe);
  std::uint32_t basic_blocks() const {
    const auto bytes = units * kWqeUnit;
    return units == 0 ? 1 : static_cast<std::uint32_t>((bytes - 1) / kWqeBasicBlock + 1);
  }
};

/// Cookie of a request: all that its CQE needs of the WQE.
struct SendCookie {
  std::uint16_t index = 0;
  std::uint8_t opcode = 0;
  bool event = false;

  std::uint32_t pack() const {
    return index | std::uint32_t{opcode} << 16 | std::uint32_t{event} << 24;
  }
  static SendCookie unpack(std::uint32_t cookie) {
    return {.index = static_cast<std::uint16_t>(cookie),
            .opcode = static_cast<std::uint8_t>(cookie >> 16),
            .event = (cookie >> 24 & 1) != 0};
  }
};

/// Fills in `request`, which was reset(), but for its cookie. `wqe` is a copy in the device's own
/// memory (the guest may change its own at any time), of exactly the size that the control segment
/// tells.
WqeFault decode_send_wqe(std::span<const std::byte> wqe, std::uint16_t expected_index,
                         const SendWqeRules& rules, rdma::SendRequest& request);

}  // namespace softhca::connectx
