// What the transport asks of the device that owns a QP: the next work request, and to take
// completions. The device must not call back into the transport from here.
#pragma once

#include <cstddef>
#include <span>

#include "rdma/block_signature.h"
#include "rdma/page_fault.h"
#include "rdma/work_request.h"

namespace softhca::rdma {

enum class Fetch : std::uint8_t {
  kNothing,      ///< the queue is empty
  kRequest,      ///< the request was filled in
  kLastRequest,  ///< likewise, and when the doorbell rang nothing was posted behind it
  kMalformed,   ///< a WQE that the document does not allow: cookie, fault (and opcode if known) are
                ///< filled in; ends in kLocalQpOperation
  kUnreadable,  ///< the queue's memory is gone: the QP fails
};

enum class QpEvent : std::uint8_t {
  kCommunicationEstablished,  ///< first packet in RTR
  kSqDrained,
  kLastWqeReached,      ///< QP with SRQ in ERR has consumed its last WQE
  kCatastrophic,        ///< local work queue catastrophic error
  kInvalidRequest,      ///< local invalid request error
  kAccessError,         ///< local access violation error
  kInvalidXrceth,       ///< a request to an XRC target names an SRQ that does not exist
  kXrcDomainViolation,  ///< or one of another XRC domain
  kDcKeyViolation,      ///< a request to a DC target has another key
};

/// How a request ended that a device carries out itself.
struct LocalOutcome {
  WorkStatus status = WorkStatus::kSuccess;
  Reason reason = Reason::kNone;
  bool unfinished = false;  ///< there is more to do, in another turn: nothing is decided yet
};

/// The queues of one QP, as its device keeps them.
class WorkQueues {
 public:
  virtual ~WorkQueues() = default;
  /// The next request of the send queue, in posting order. `request` was reset(). Also asked for
  /// in ERR and SQE, to flush what is posted.
  virtual Fetch fetch_send(SendRequest& request) = 0;
  /// Of UD, in RTS: the next request if it is a datagram of at most `bytes_max` bytes to the
  /// destination of that number (UdDestination), which is not 0. kNothing if it is anything else,
  /// or there is none, or it cannot be read: fetch_send() tells. Devices that give no numbers leave
  /// it as it is.
  virtual Fetch fetch_short_datagram(std::uint64_t /*destination*/, std::uint32_t /*bytes_max*/,
                                     ShortDatagram&) {
    return Fetch::kNothing;
  }
  /// The QP goes from SQE to RTS. What is posted to its send queue now, fetch_send() is to mark as
  /// stale; what is posted later is to be sent. So flushing is work like any other, and a queue
  /// that is filled all the time does not keep the transport.
  virtual void restart_send() = 0;
  /// From the QP's receive queue, or the SRQ it is bound to; of an XRC target, from the SRQ `srqn`
  /// that the packet names, which is one of Transport's. `request` was reset().
  virtual Fetch fetch_receive(ReceiveRequest& request, XrcSrqn srqn) = 0;
  /// Of a QP in RTS: the next request of its own receive queue, if that is one piece of memory.
  /// False, and nothing is taken, if it is anything else, or cannot be read, or there is none:
  /// fetch_receive() tells. To be quick is all that it is for.
  virtual bool fetch_receive_piece(ReceivePiece&) { return false; }
  /// Carries out a request with SendOpcode::kLocal (registration, local invalidate) when its turn
  /// has come (all earlier requests have been sent; with `fence`, earlier reads and atomics are
  /// complete). It may change the transport's memory keys, but nothing else of the transport.
  /// `again`: the last answer to this request was that it is unfinished.
  virtual LocalOutcome execute_local(const SendRequest&, bool /*again*/) {
    return {WorkStatus::kLocalQpOperation, Reason::kLocalOperationRefused};
  }
  /// Once for each request that was signaled or has failed, in posting order.
  virtual void complete_send(const SendCompletion& completion) = 0;
  virtual void complete_receive(const ReceiveCompletion& completion) = 0;
  // The same with data that stand nowhere else (CompletionData). Devices that ask for none are not
  // called so.
  virtual void complete_send_with(const SendCompletion& completion, std::span<const std::byte>) {
    complete_send(completion);
  }
  virtual void complete_receive_with(const ReceiveCompletion& completion,
                                     std::span<const std::byte>) {
    complete_receive(completion);
  }
  virtual void handle_event(QpEvent event, Reason reason) = 0;
  /// The protection of a block of a signature key is wrong. Its data were moved all the same, and
  /// the completion that tells so comes after this. `sends`: by a request of the send queue.
  /// Otherwise `srqn` is what a request to an XRC target names.
  virtual void handle_signature_error(const SignatureError&, bool /*sends*/, XrcSrqn /*srqn*/) {}
  /// A page is not there. One side of a QP has one such fault open at a time.
  virtual FaultAnswer open_fault(const PageFault&) { return FaultAnswer::kNobody; }
  /// A fault that was opened is over, by Transport::resume() or because the QP has left its state.
  virtual void close_fault() {}
};

}  // namespace softhca::rdma
