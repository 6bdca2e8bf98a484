// The events of queue pairs (JingZhao 3.2.4).
#pragma once

#include "jingzhao/event_queues.h"
#include "rdma/work_queues.h"

namespace softhca::jingzhao {

/// The type of the event in the EQ. Events that the device has no type for are catastrophic.
inline EventType event_type_of(rdma::QpEvent event) {
  switch (event) {
    case rdma::QpEvent::kCommunicationEstablished:
      return EventType::COMM_EST;
    case rdma::QpEvent::kSqDrained:
      return EventType::SQ_DRAINED;
    case rdma::QpEvent::kInvalidRequest:
      return EventType::WQ_INVAL_REQ_ERROR;
    case rdma::QpEvent::kAccessError:
      return EventType::WQ_ACCESS_ERROR;
    default:
      return EventType::WQ_CATAS_ERROR;
  }
}

}  // namespace softhca::jingzhao
