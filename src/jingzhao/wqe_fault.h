// Faults of a WQE: the device's own reasons, with numbers that never change.
#pragma once

#include <cstdint>
#include <string_view>

#include "rdma/reasons.h"

namespace softhca::jingzhao {

enum class WqeFault : std::uint8_t {
  kNone = 0,
  kUnknownOpcode = 1,
  kOtherService = 2,
  kTooShort = 3,
  kTooLong = 4,
  kInlineTooLong = 5,
  kInlineForbidden = 6,
  kMixedPayload = 7,
  kTooManyPieces = 8,
  kMessageTooLong = 9,
  kContextGone = 10,
  kDoorbellsFull = 11,
  kChainLeavesQueue = 12,
};

struct WqeFaultInfo {
  std::string_view text;
  std::string_view section;
};

constexpr WqeFaultInfo describe(WqeFault fault) {
  switch (fault) {
    case WqeFault::kNone:
      break;
    case WqeFault::kUnknownOpcode:
      return {"the opcode is none of a WQE", "JingZhao table 3-3-3"};
    case WqeFault::kOtherService:
      return {"the QP's type has no such operation", "docs/jingzhao.md"};
    case WqeFault::kTooShort:
      return {"the WQE ends before the units that its opcode needs", "JingZhao 3.4"};
    case WqeFault::kTooLong:
      return {"the WQE is longer than max_desc_sz, or than its queue", "JingZhao 3.2.1.1"};
    case WqeFault::kInlineTooLong:
      return {"the inline unit is longer than its WQE", "JingZhao 3.4.5"};
    case WqeFault::kInlineForbidden:
      return {"an inline unit cannot take data", "JingZhao 3.4"};
    case WqeFault::kMixedPayload:
      return {"an inline unit beside data units", "JingZhao 3.4"};
    case WqeFault::kTooManyPieces:
      return {"more data units than max_sg", "JingZhao 3.2.1.1"};
    case WqeFault::kMessageTooLong:
      return {"the message is longer than msgmax of the QP", "JingZhao 3.2.6.1"};
    case WqeFault::kContextGone:
      return {"the ICM of its context is not mapped, or gone", "JingZhao 3.2.2.2"};
    case WqeFault::kDoorbellsFull:
      return {"more doorbells wait than the device keeps", "docs/jingzhao.md"};
    case WqeFault::kChainLeavesQueue:
      return {"a next unit names a place outside of the SQ, or there is no SQ", "JingZhao 3.4.1"};
  }
  return {};
}

constexpr rdma::Reason reason_of(WqeFault fault) {
  return rdma::Reason(static_cast<std::uint8_t>(fault));
}
inline std::string_view text_of(rdma::Reason reason) {
  return rdma::is_of_device(reason) ? describe(WqeFault(static_cast<std::uint8_t>(reason))).text
                                    : rdma::describe(reason).text;
}

}  // namespace softhca::jingzhao
