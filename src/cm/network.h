// The QP1s of the host, as the communication manager uses them.
#pragma once

#include <cstdint>

#include "cm/connection.h"
#include "cm/mad.h"
#include "wire/gid.h"

namespace softhca::cm {

class Network {
 public:
  virtual ~Network() = default;
  /// False: the datagram cannot be sent now.
  virtual bool send(const Mad& mad, const LocalAddress& from, const wire::Gid& to) = 0;
  /// The source of the answer to a message.
  virtual LocalAddress answers_from(const Received& message) const = 0;
  virtual std::uint64_t node_guid(unsigned port) const = 0;
  /// The upper 8 bits of the numbers of a port's connections; 0: any. Hosts that share an address
  /// are told apart by them.
  virtual std::uint8_t number_block(unsigned port) const = 0;
};

}  // namespace softhca::cm
