// The interface of the device that owns a QP, as the transport calls it: it supplies work requests
// and takes completions. The device must not call back into the transport from here.
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
  kLastRequest,  ///< the request was filled in, and is the last one the doorbell announced
  kMalformed,   ///< a WQE that the document does not allow: cookie, fault (and opcode if known) are
                ///< filled in; the request ends in kLocalQpOperation
  kUnreadable,  ///< the queue's memory is gone: the QP fails
  kFailed,      ///< the request was filled in, and ends in failed_status() for a fault rule
};

enum class QpEvent : std::uint8_t {
  kCommunicationEstablished,  ///< first packet in RTR
  kSqDrained,
  kLastWqeReached,      ///< QP with SRQ in ERR has consumed its last WQE
  kCatastrophic,        ///< local work queue catastrophic error
  kInvalidRequest,      ///< local invalid request error
  kAccessError,         ///< local access violation error
  kInvalidXrceth,       ///< a request to an XRC target names an SRQ that does not exist
  kXrcDomainViolation,  ///< a request to an XRC target names an SRQ of another XRC domain
  kDcKeyViolation,      ///< a request to a DC target has another key
};

/// Result of a request that the device executes itself.
struct LocalOutcome {
  WorkStatus status = WorkStatus::kSuccess;
  Reason reason = Reason::kNone;
  bool unfinished = false;  ///< more remains to be done in another turn; status is not final yet
};

/// The posted work requests of one QP.
class PostedRequests {
 public:
  virtual ~PostedRequests() = default;
  /// The next request of the send queue, in posting order. The transport has reset() `request`. It
  /// also calls this in ERR and SQE, to flush posted requests.
  virtual Fetch fetch_send(SendRequest& request) = 0;
  /// Fast path of fetch_send() for UD in RTS: the next request if it is a datagram of at most
  /// `bytes_max` bytes to the destination with this number (UdDestination::number, not 0). kNothing
  /// in any other case, including an empty or unreadable queue: then call fetch_send(). A device
  /// that gives no numbers keeps this default.
  virtual Fetch fetch_datagram_fast(std::uint64_t /*destination*/, std::uint32_t /*bytes_max*/,
                                    ShortDatagram&) {
    return Fetch::kNothing;
  }
  /// The status of a request that fetch_send() has returned as kFailed.
  virtual WorkStatus failed_status() const { return WorkStatus::kLocalQpOperation; }
  /// The QP goes from SQE to RTS. From now on fetch_send() marks the requests that are posted now
  /// as stale; later ones are sent. Flushing is thus metered like other work, and software that
  /// keeps the queue full cannot hold up the transport.
  virtual void restart_send() = 0;
  /// The next request of the QP's receive queue, or of its SRQ. An XRC target takes it from the SRQ
  /// `srqn` that the packet names, an entry of Transport::xrc_srqs(). The transport has reset()
  /// `request`.
  virtual Fetch fetch_receive(ReceiveRequest& request, XrcSrqn srqn) = 0;
  /// Fast path of fetch_receive() for a QP in RTS: the next request of its own receive queue, if
  /// that is one piece of memory. False, with nothing consumed, in any other case: then call
  /// fetch_receive().
  virtual bool fetch_receive_fast(ReceivePiece&) { return false; }
};

/// The queues of one QP, kept by its device: requests come from them, completions and events go to
/// them.
class WorkQueues : public PostedRequests {
 public:
  /// Executes a request with SendOpcode::kLocal (registration, local invalidate) in its turn: all
  /// earlier requests have been sent, and with `fence` earlier READs and atomics are complete. It
  /// may change the transport's memory keys, but nothing else of the transport. `again`: the
  /// previous call for this request returned `unfinished`.
  virtual LocalOutcome execute_local(const SendRequest&, bool /*again*/) {
    return {WorkStatus::kLocalQpOperation, Reason::kLocalOperationRefused};
  }
  /// Called in posting order, once for each request that was signaled or has failed.
  virtual void complete_send(const SendCompletion& completion) = 0;
  virtual void complete_receive(const ReceiveCompletion& completion) = 0;
  // The same with data that are in no SGE (CompletionData). Only for devices that ask for it.
  virtual void complete_send_with(const SendCompletion& completion, std::span<const std::byte>) {
    complete_send(completion);
  }
  virtual void complete_receive_with(const ReceiveCompletion& completion,
                                     std::span<const std::byte>) {
    complete_receive(completion);
  }
  virtual void handle_event(QpEvent event, Reason reason) = 0;
  /// The signature of a block is wrong. Its data were moved all the same; the completion that
  /// reports the error follows. `sends`: the data moved for a request of the send queue. Otherwise
  /// `srqn` is the SRQ that a request to an XRC target names.
  virtual void handle_signature_error(const SignatureError&, bool /*sends*/, XrcSrqn /*srqn*/) {}
  /// An access hit an absent page. Each side of a QP has at most one such fault open.
  virtual FaultAnswer open_fault(const PageFault&) { return FaultAnswer::kNobody; }
  /// An open fault is over, by Transport::resume() or because the QP has left its state.
  virtual void close_fault() {}
};

}  // namespace softhca::rdma
