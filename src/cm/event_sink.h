// The events of connections, and the user of the communication manager, which receives them.
#pragma once

#include <cstdint>

#include "cm/connection.h"
#include "cm/offer.h"

namespace softhca::cm {

struct Event {
  enum class Kind : std::uint8_t {
    kReply,            ///< the peer has accepted; the program has to confirm
    kEstablished,      ///< by the peer's confirmation
    kRejected,         ///< `status`: the reason of the REJ
    kDisconnected,     ///< by the peer, or with its consent
    kLost,             ///< disconnected, but the peer has not answered
    kUnreachable,      ///< the peer has not answered
    kTimeWaitOver,     ///< its packets are no longer in flight
    kServiceResolved,  ///< by a SIDR_REP: Connection::qp names the peer's QP and its Q_Key
    kServiceRefused,   ///< `status`: that of the SIDR_REP
    kWrongQkey,        ///< a SIDR_REP has another Q_Key than the connection
  };

  Kind kind;
  std::uint32_t status = 0;
  Offer offer = {};  ///< kReply; of other messages only the private data
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void handle(const Connection& connection, const Event& event) = 0;
};

}  // namespace softhca::cm
