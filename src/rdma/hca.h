// What the transport asks of the HCA that owns it: the next work request of a queue, and to
// take completions. The HCA must not call back into the transport from here.
#pragma once

#include "rdma/work_request.h"

namespace softhca::rdma {

class QueuePair;

enum class Fetch : std::uint8_t {
  kNothing,    ///< the queue is empty
  kRequest,    ///< the request was filled in
  kMalformed,  ///< a WQE that the document does not allow: cookie (and opcode if known) are filled in; ends in kLocalQpOperation
  kUnreadable, ///< the queue's memory is gone: the QP fails
};

enum class QpEvent : std::uint8_t {
  kCommunicationEstablished,  ///< first packet in RTR
  kSqDrained,
  kLastWqeReached,            ///< QP with SRQ in ERR has consumed its last WQE
  kCatastrophic,              ///< local work queue catastrophic error
  kInvalidRequest,            ///< local invalid request error
  kAccessError,               ///< local access violation error
};

class Hca {
 public:
  virtual ~Hca() = default;
  virtual Fetch fetch_send(QueuePair& qp, SendRequest& request) = 0;
  /// From the QP's receive queue, or the SRQ it is bound to.
  virtual Fetch fetch_receive(QueuePair& qp, ReceiveRequest& request) = 0;
  virtual void complete_send(QueuePair& qp, const SendCompletion& completion) = 0;
  virtual void complete_receive(QueuePair& qp, const ReceiveCompletion& completion) = 0;
  virtual void handle_event(QueuePair& qp, QpEvent event, std::string_view reason) = 0;
};

}  // namespace softhca::rdma
