// The send queue of a queue pair: writes work requests into the ring, without ringing the doorbell.
#pragma once

#include "driver/connectx/send_ring.h"

namespace softhca::driver::connectx {

class SendQueue : public SendRing {
 public:
  /// Blocks that the largest request needs.
  static unsigned blocks_per_request(const Limits& limits);
  /// The same for datagrams.
  static unsigned blocks_per_datagram(const Limits& limits);

  PostStatus post(const SendRequest& request);
  /// The same for datagrams: a SEND that begins with `request.address` (an AddressVector).
  PostStatus post_datagram(const SendRequest& request);

 private:
  PostStatus check(const SendRequest& request) const;
  static unsigned size_of(const SendRequest& request);
};

}  // namespace softhca::driver::connectx
