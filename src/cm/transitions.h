// The states of a connection and their transitions (IBTA 12.9.7), as in Linux's ib_cm.
#pragma once

#include <cstdint>

#include "cm/connection.h"

namespace softhca::cm {

/// Inputs of a connection: messages of the peer, calls of the program, and time.
enum class Input : std::uint8_t {
  kReq,  ///< repeated
  kMraOfReq,
  kMraOfRep,
  kRep,
  kRtu,
  kRej,
  kDreq,
  kDrep,
  kAccept,      ///< by the active side
  kDisconnect,  ///< by either side
  kTimeout,     ///< all retransmissions are used up
};

enum class Action : std::uint8_t {
  kNone,
  kWaitLonger,
  kSendMra,
  kSendRtu,
  kSendDreq,
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
  Input input;
  State to;
  Action action;
};

/// Null: the input has no effect in this state.
const Transition* find_transition(State from, Input input);

}  // namespace softhca::cm
