// Numbered faults of a WQE. The error CQE carries the number (error_cqe.h), and `softhca explain
// cqe` explains it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "rdma/reasons.h"

namespace softhca::connectx {

/// This device's part of the numbers of rdma::Reason, 1 to 127. Numbers are only added, never
/// changed or reused. Faults of QPs begin at 1, faults of SQs at 64.
enum class WqeFault : std::uint8_t {
  kNone = 0,
  kSizeZero = 1,
  kPastPosted = 2,
  kWrongIndex = 3,
  kWrongQpn = 4,
  kUnknownOpcode = 5,
  kOpcodeForService = 6,
  kMaskedAtomic = 7,     ///< no longer raised
  kMemoryKeyUpdate = 8,  ///< no longer raised
  kNoRemoteAddress = 9,
  kNoAtomicOperands = 10,
  kNoAddressVector = 11,
  kShortAddressVector = 12,
  kInlineForRead = 13,
  kInlineTooLong = 14,
  kMixedPayload = 15,  ///< no longer raised
  kAtomicLength = 16,
  kMessageTooLong = 17,  ///< no longer raised: the transport checks it
  kAtomicsOff = 18,
  kNoXrcSegment = 19,
  kUmrShort = 20,
  kUmrCheckReserved = 21,
  kUmrListUnaligned = 22,
  kUmrListMissing = 23,
  kUmrPointerUnaligned = 24,
  kUmrKeyUnknown = 25,
  kUmrNotEnabled = 26,
  kUmrOtherPd = 27,
  kUmrOtherQp = 28,
  kUmrNotFree = 29,
  kUmrFree = 30,
  kUmrMask = 31,
  kUmrPhysical = 32,
  kUmrListTooLong = 33,
  kUmrNoTranslations = 34,
  kUmrUnknownPd = 35,
  kUmrRange = 36,
  kUmrPageSize = 37,
  kUmrStrided = 38,
  kAtomicOperandSize = 39,
  kSignature = 40,
  kReceiveSignature = 41,
  kUmrBsfSize = 42,
  kUmrNotSignable = 43,
  kUmrBsfMissing = 44,
  kUmrBsf = 45,
  kPsvUnknown = 46,
  kSetPsvShort = 47,

  kNotAnEthernetOpcode = 64,
  kNoTis = 65,
  kNoEthSegment = 66,
  kInnerChecksums = 67,
  kInlineHeadersTooLong = 68,
  kLsoWithoutMss = 69,
  kFrameTooLong = 70,
  kLsoTooLong = 71,
  kLsoHeadersTooLong = 72,
  kLsoNotTcpOrUdp = 73,
  kLsoHeadersEndElsewhere = 74,
  kLsoMss = 75,
  kMultiPacketWithoutMss = 76,
  kMultiPacketInline = 77,
  kMultiPacketTooLong = 78,
};

struct WqeFaultInfo {
  WqeFault fault;
  std::string_view text;
  std::string_view section;
};
/// @pre `fault` is in the enumeration
const WqeFaultInfo& describe(WqeFault fault);
constexpr rdma::Reason reason_of(WqeFault fault) { return static_cast<rdma::Reason>(fault); }

/// The meaning of a reason number: a WqeFault or a reason of the transport.
struct ReasonMeaning {
  std::string_view of;  ///< the kind of failure
  std::string_view text;
  std::string_view section;
};
/// Unset for an unused number.
std::optional<ReasonMeaning> explain_reason(std::uint32_t number);

}  // namespace softhca::connectx
