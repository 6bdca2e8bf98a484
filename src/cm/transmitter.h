// Sends messages, and retransmits those that await an answer.
#pragma once

#include <random>

#include "cm/connection.h"
#include "cm/network.h"
#include "cm/wakeup.h"

namespace softhca::cm {

class Transmitter {
 public:
  Transmitter(Network& network, Wakeup& wakeup);

  /// False: the message cannot be sent now.
  bool send(const Mad& mad, const Connection& connection) {
    return network_.send(mad, connection.local, *connection.peer);
  }
  /// Sends a message, and retransmits it until it is answered.
  void repeat(Connection& connection, const Mad& mad, util::Time now);
  /// Retransmits the message of a connection. False: all its retransmissions are used up.
  bool retransmit(Connection& connection, util::Time now);
  /// Sets the time until the next retransmission.
  void postpone(Connection& connection, util::Duration interval, util::Time now);
  /// Ends the retransmissions.
  static void settle(Connection& connection) { connection.exchange.repeated = {}; }

 private:
  util::Duration spread(util::Duration interval);

  Network& network_;
  Wakeup& wakeup_;
  std::mt19937 spread_;
};

}  // namespace softhca::cm
