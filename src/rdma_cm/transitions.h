// The states of a connection and what ends them (IBTA 12.9.7), as Linux' ib_cm has them.
#pragma once

#include <cstdint>

#include "rdma_cm/identifier.h"

namespace softhca::rdma_cm {

/// What is heard of the other end.
enum class Heard : std::uint8_t {
  kReq,  ///< once more
  kMraOfReq,
  kMraOfRep,
  kRep,
  kRtu,
  kRej,
  kDreq,
  kDrep,
  kNothing,  ///< although the message was sent as often as it may be
};

enum class Action : std::uint8_t {
  kNone,
  kWaitLonger,
  kSendMra,
  kSendRtu,
  kSendDrep,
  kRejectStale,
  kReportResponse,
  kReportEstablished,
  kReportRejected,
  kReportDisconnected,
  kReportLost,  ///< disconnected, but the other end has not answered
  kReportUnreachable,
};

struct Transition {
  State from;
  Heard heard;
  State to;
  Action action;
};

/// Null: it means nothing in this state, and is passed over.
const Transition* find_transition(State from, Heard heard);

}  // namespace softhca::rdma_cm
