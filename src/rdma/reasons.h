// Why an operation was refused, as a number that never changes.
//
// The number goes with each completion, event and dropped packet. A device can put it into its CQE,
// and the log has its text. 1 to 127 are the device's own, for faults in a WQE that it finds before
// the transport sees it. 128 to 255 are the transport's, listed here. Numbers are only added, never
// changed or reused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace softhca::rdma {

enum class Reason : std::uint8_t {
  kNone = 0,

  // Memory keys, local and remote.
  kKeyUnknown = 128,
  kKeyInvalidated = 129,
  kKeyOtherPd = 130,
  kKeyOtherQp = 131,
  kKeyRights = 132,
  kKeyRange = 133,
  kReservedKeyForbidden = 134,
  kMemoryUnreachable = 135,
  kScatterListShort = 136,
  kPageAbsent = 137,
  kPageNotBrought = 138,
  kKeySigned = 139,
  kSignatureValueGone = 140,
  kSignatureMismatch = 141,

  // Send requests, before they are sent.
  kMalformedRequest = 144,
  kSendQueueUnreachable = 145,
  kOperationOfOtherService = 146,
  kMessageTooLong = 147,
  kInlineRead = 148,
  kNoReadsAllowed = 149,
  kAtomicSize = 150,
  kNoSourceAddress = 151,
  kLocalOperationRefused = 152,
  kFlushed = 153,
  kNoVirtualLane = 154,
  kBeyondMessage = 155,
  kFaultRule = 156,

  // Responses to send requests.
  kNakInvalidRequest = 160,
  kNakRemoteAccess = 161,
  kNakRemoteOperation = 162,
  kRetriesExceeded = 163,
  kRnrRetriesExceeded = 164,
  kReadResponseMismatch = 165,
  kAtomicResponseMismatch = 166,
  kReservedSyndrome = 167,
  kReservedNak = 168,

  // Requests of the peer.
  kNoReceiveQueue = 176,
  kNothingPosted = 177,
  kReceiveQueueUnreachable = 178,
  kMalformedReceive = 179,
  kMessageInMessage = 180,
  kMiddleOfNothing = 181,
  kMixedMessage = 182,
  kPacketSize = 183,
  kReceiveTooShort = 184,
  kDatagramTooLong = 185,
  kWriteForbidden = 186,
  kReadForbidden = 187,
  kAtomicForbidden = 188,
  kWriteTooLong = 189,
  kReadTooLong = 190,
  kWriteLength = 191,
  kWriteData = 192,
  kNotARequest = 193,
  kRequestInMessage = 194,
  kRequestWithPayload = 195,
  kTooManyReads = 196,
  kAtomicUnaligned = 197,
  kInvalidateUnknown = 198,
  kInvalidateOther = 199,
  kInvalidateTwice = 200,
  kInvalidateForbidden = 201,
  kMemoryGoneDuringRead = 202,
  kXrcSrqUnknown = 203,
  kXrcSrqOfOtherDomain = 204,

  // Dropped packets.
  kUnexpectedAnswer = 208,
  kUnexpectedRequest = 209,
  kPsnAhead = 210,
  kRepeatedReadAhead = 211,
  kRepeatedAtomicTooOld = 212,
  kWrongIcrc = 213,
  kMalformedPacket = 214,
  kQpInReset = 215,
  kOtherService = 216,
  kNotFromPeer = 217,
  kWrongPkey = 218,
  kWrongQkey = 219,
  kAnswerToNothing = 220,
  kBrokenMessage = 221,
  kTooManyDuplicates = 222,
  kUnknownQpn = 223,

  // Verbs, and events to the device.
  kTransitionForbidden = 224,
  kPathMtu = 225,
  kFirstPacket = 226,
  kDrained = 227,
  kLastWqe = 228,
  kCompletionQueueFailed = 229,

  // Dropped packets to a DC target.
  kWrongDcKey = 232,
  kDcTargetDrains = 233,
  kDcNotConnected = 234,
  kDcOldSession = 235,
  kDcNoResponder = 236,

  // Dropped copies of multicast packets.
  kTooManyCopies = 237,

  // Refused requests.
  kSendTooLong = 238,
  kUnsupportedRequest = 239,
  kXrcSrqChanged = 240,

  // Dropped frames.
  kTooManyPieces = 241,
};

/// True for a fault that a device found in a request; the device has its text.
constexpr bool is_of_device(Reason reason) {
  return reason != Reason::kNone && reason < Reason::kKeyUnknown;
}

struct ReasonInfo {
  Reason reason;
  std::string_view text;
  std::string_view section;  ///< of the InfiniBand Architecture Specification; DC reasons cite no
                             ///< InfiniBand document
};

/// All reasons of the transport, by number.
std::span<const ReasonInfo> reason_table();
/// Text and section of a reason. The device's own reasons have no text here.
const ReasonInfo& describe(Reason reason);

}  // namespace softhca::rdma
