// The states of a connection and their transitions (IBTA 12.9.7), as in Linux's ib_cm.
#pragma once

#include <cstdint>

#include "rdma_cm/identifier.h"

namespace softhca::rdma_cm {

/// Events of a connection: messages of the peer, or none at all.
enum class Heard : std::uint8_t {
  kReq,  ///< repeated
  kMraOfReq,
  kMraOfRep,
  kRep,
  kRtu,
  kRej,
  kDreq,
  kDrep,
  kNothing,  ///< timeout: all retransmissions are used up
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
  kReportLost,  ///< disconnected, but the peer has not answered
  kReportUnreachable,
};

struct Transition {
  State from;
  Heard heard;
  State to;
  Action action;
};

/// Null: the message is ignored in this state.
const Transition* find_transition(State from, Heard heard);

}  // namespace softhca::rdma_cm
