#include "rdma/reasons.h"

#include <algorithm>
#include <iterator>

namespace softhca::rdma {
namespace {

using enum Reason;

constexpr std::string_view kKeys = "IBTA 10.6.3";
constexpr std::string_view kDisabled = "IBTA 9.9.3";
constexpr std::string_view kNaks = "IBTA 9.7.5.2";
constexpr std::string_view kInvalidate = "IBTA 9.4.1.1";
constexpr std::string_view kDc = "US patent 8,213,315";

constexpr ReasonInfo kReasons[] = {
    {kKeyUnknown, "no memory key has this number and variant", kKeys},
    {kKeyInvalidated, "the memory key is invalidated", kKeys},
    {kKeyOtherPd, "the memory key belongs to another protection domain", "IBTA 10.2.3"},
    {kKeyOtherQp, "the memory key belongs to another QP", "IBTA 10.6.7"},
    {kKeyRights, "the memory key does not grant this access", kKeys},
    {kKeyRange, "the range is not inside the memory key", kKeys},
    {kReservedKeyForbidden, "the QP may not use the reserved LKey", "IBTA 10.6.3.1"},
    {kMemoryUnreachable, "the memory behind the key is not mapped for DMA", kKeys},
    {kScatterListShort, "the pieces are shorter than the message", "IBTA 10.7.3"},
    {kPageAbsent, "a page of the memory key is not there, or does not grant this access", kKeys},
    {kPageNotBrought, "the driver could not bring a page of the memory key", kKeys},
    {kKeySigned, "an atomic, a nested key, or a queue that cannot use a signature key", kKeys},
    {kSignatureValueGone, "a signature value (PSV) of the memory key was destroyed", kKeys},
    {kSignatureMismatch, "the protection of a block is not what it should be", "T10 SBC-3 4.22"},

    {kMalformedRequest, "the device found the work queue entry malformed", "IBTA 11.4.1"},
    {kSendQueueUnreachable, "the send queue's memory is not reachable", "IBTA 10.10.2.3"},
    {kOperationOfOtherService, "the QP's service does not have this operation",
     "IBTA 9.4 Table 36"},
    {kMessageTooLong, "the message is longer than the service allows", "IBTA 9.7.7"},
    {kInlineRead, "READ or atomic with inline data", "IBTA 11.4.1.1"},
    {kNoReadsAllowed, "the QP allows no outstanding READ or atomic", "IBTA 11.2.4.2"},
    {kAtomicSize, "the buffer of an atomic has another size than its operands", "IBTA 9.4.5"},
    {kNoSourceAddress,
     "the path's source address is not set, or of another kind than its destination",
     "IBTA 10.2.2"},
    {kLocalOperationRefused, "the device refused the operation", "IBTA 11.4.1.1"},
    {kFlushed, "the QP went to an error state before", "IBTA 10.3.1"},
    {kNoVirtualLane, "the port has no virtual lane for the service level", "IBTA 7.6.6"},
    {kBeyondMessage, "a packet beyond the end of its message was about to be sent", "IBTA 9.7.2"},
    {kFaultRule, "a fault rule of the user made the request fail", "IBTA 11.6.2"},

    {kNakInvalidRequest, "the peer refused the request as invalid", kNaks},
    {kNakRemoteAccess, "the peer refused the access", kNaks},
    {kNakRemoteOperation, "the peer could not carry out the request", kNaks},
    {kRetriesExceeded, "no answer, and the retries are used up", "IBTA 9.9.2"},
    {kRnrRetriesExceeded, "the peer had no receive request, and the RNR retries are used up",
     "IBTA 9.9.2"},
    {kReadResponseMismatch, "READ response with the wrong opcode or length", "IBTA 9.7.5.1"},
    {kAtomicResponseMismatch, "atomic response to another request", "IBTA 9.7.5.1"},
    {kReservedSyndrome, "AETH with a reserved syndrome", "IBTA 9.7.5.1"},
    {kReservedNak, "NAK with a reserved code", kNaks},

    {kNoReceiveQueue, "the QP has no receive queue", "IBTA 9.7.4.1"},
    {kNothingPosted, "no receive request is posted", "IBTA 9.7.5.2.8"},
    {kReceiveQueueUnreachable, "the receive queue's memory is not reachable", "IBTA 10.10.2.3"},
    {kMalformedReceive, "the device found the receive request malformed", "IBTA 11.4.1.2"},
    {kMessageInMessage, "a message begins inside another", "IBTA 9.7.4.1"},
    {kMiddleOfNothing, "middle or end of no message", "IBTA 9.7.4.1"},
    {kMixedMessage, "SEND and RDMA WRITE packets in one message", "IBTA 9.7.4.1"},
    {kPacketSize, "the packet's length does not fit the path MTU", "IBTA 9.7.4.1"},
    {kReceiveTooShort, "the message is longer than the receive request", "IBTA 9.7.4.1"},
    {kDatagramTooLong, "the datagram and the 40 bytes before it do not fit", "IBTA 9.8.3"},
    {kWriteForbidden, "the QP does not allow RDMA WRITE", kDisabled},
    {kReadForbidden, "the QP does not allow RDMA READ", kDisabled},
    {kAtomicForbidden, "the QP does not allow this atomic", kDisabled},
    {kWriteTooLong, "RDMA WRITE of more bytes than a message of the QP may have", "IBTA 9.7.7"},
    {kReadTooLong, "RDMA READ of more bytes than a message of the QP may have", "IBTA 9.7.7"},
    {kWriteLength, "the length of the RDMA WRITE does not fit its packets", "IBTA 9.7.4.1"},
    {kWriteData, "the data of the RDMA WRITE do not add up to its length", "IBTA 9.7.4.1"},
    {kNotARequest, "the opcode is not that of a request", "IBTA 9.7.4.1"},
    {kRequestInMessage, "READ or atomic inside a message", "IBTA 9.7.4.1"},
    {kRequestWithPayload, "READ or atomic request with a payload", "IBTA 9.7.4.1"},
    {kTooManyReads, "more READs and atomics outstanding than max_dest_rd_atomic", "IBTA 9.7.4.1"},
    {kAtomicUnaligned, "atomic at an address that is not aligned to the size of its operands",
     "IBTA 9.4.5"},
    {kInvalidateUnknown, "SEND with invalidate of a key that does not exist", kInvalidate},
    {kInvalidateOther, "SEND with invalidate of a key of another protection domain or QP",
     kInvalidate},
    {kInvalidateTwice, "SEND with invalidate of a key that is invalid already", kInvalidate},
    {kInvalidateForbidden, "SEND with invalidate of a key that may not be invalidated",
     kInvalidate},
    {kMemoryGoneDuringRead, "memory went away during an RDMA READ", "IBTA 9.7.4.1"},
    {kXrcSrqUnknown, "the XRCETH names an SRQ that does not exist", "IBTA Annex A14"},
    {kXrcSrqOfOtherDomain, "the XRCETH names an SRQ of another XRC domain", "IBTA Annex A14"},

    {kUnexpectedAnswer, "the QP's state takes no answers", "IBTA 10.3.1"},
    {kUnexpectedRequest, "the QP's state takes no requests", "IBTA 10.3.1"},
    {kPsnAhead, "the PSN is ahead of the expected one", "IBTA 9.7.4.1"},
    {kRepeatedReadAhead, "repeated READ beyond the expected PSN", "IBTA 9.7.4.1"},
    {kRepeatedAtomicTooOld, "repeated atomic that is too old to be answered", "IBTA 9.7.4.1"},

    {kWrongIcrc, "wrong ICRC", "IBTA 7.8.1"},
    {kMalformedPacket, "the headers do not add up", "IBTA 9.6"},
    {kQpInReset, "the QP is in RESET", "IBTA 10.3.1"},
    {kOtherService, "opcode of another service than the QP's", "IBTA 9.6.1"},
    {kNotFromPeer, "not from the QP's peer", "IBTA 9.6.1"},
    {kWrongPkey, "wrong P_Key", "IBTA 10.9.3"},
    {kWrongQkey, "wrong Q_Key", "IBTA 10.2.5"},
    {kAnswerToNothing, "answer to nothing outstanding", "IBTA 9.7.5.1"},
    {kBrokenMessage, "rest of a message that lost a packet or was refused", "IBTA 9.8.2.2"},
    {kTooManyDuplicates, "no room for another duplicate request", "IBTA 9.7.4.1"},
    {kUnknownQpn, "the destination QP does not exist", "IBTA 9.6.1.2"},

    {kTransitionForbidden, "the QP's state and type do not allow this transition", "IBTA 10.3.1"},
    {kPathMtu, "the path MTU is not 256, 512, 1024, 2048 or 4096", "IBTA 11.2.4.2"},
    {kFirstPacket, "the first packet came in RTR", "IBTA 11.6.3"},
    {kDrained, "all requests that were begun are complete", "IBTA 10.3.1.6"},
    {kLastWqe, "the QP takes no more receives from the SRQ", "IBTA 10.3.1"},
    {kCompletionQueueFailed, "a completion queue of the QP failed", "IBTA 10.10.2.3"},

    {kWrongDcKey, "wrong DC access key", kDc},
    {kDcTargetDrains, "the DC target takes no more requests", kDc},
    {kDcNotConnected, "of a dynamic connection that is not open", kDc},
    {kDcOldSession, "of a dynamic connection that a later one has replaced", kDc},
    {kDcNoResponder, "the port has no room for another dynamic connection", kDc},

    {kTooManyCopies, "the copies for other QPs of the group have used up the work budget",
     "IBTA 10.5.2"},

    {kSendTooLong, "SEND of more bytes than a message of the QP may have", "IBTA 11.6.2"},
    {kUnsupportedRequest, "FLUSH, ATOMIC WRITE or a reserved opcode", kDisabled},
    {kXrcSrqChanged, "a repeated request names another SRQ", "IBTA Annex A14"},

    {kTooManyPieces, "the pieces of the memory key have used up the work budget", "IBTA 10.6.3"},
};

constexpr bool ascending() {
  for (std::size_t i = 1; i < std::size(kReasons); ++i) {
    if (kReasons[i].reason <= kReasons[i - 1].reason) return false;
  }
  return true;
}
static_assert(ascending() && kReasons[0].reason >= Reason(128));

constexpr ReasonInfo kNothing{kNone, "", ""};
constexpr ReasonInfo kOfTheDevice{kMalformedRequest, "a reason of the device's own", ""};

}  // namespace

std::span<const ReasonInfo> reason_table() { return kReasons; }

const ReasonInfo& describe(Reason reason) {
  if (reason == kNone) return kNothing;
  const auto* found =
      std::lower_bound(std::begin(kReasons), std::end(kReasons), reason,
                       [](const ReasonInfo& info, Reason wanted) { return info.reason < wanted; });
  return found != std::end(kReasons) && found->reason == reason ? *found : kOfTheDevice;
}

}  // namespace softhca::rdma
