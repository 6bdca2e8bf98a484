// A port in front of the port of a device whose switch has only one more, to a network of the
// host: with nothing else on the switch, the device's link is that network's.
#pragma once

#include "fabric/passing_port.h"
#include "server/host_port.h"

namespace softhca::server {

class CarrierPort final : public fabric::PassingPort {
 public:
  /// @pre both outlive this
  CarrierPort(fabric::Port& below, const HostPort& network)
      : PassingPort(below), network_(network) {}

  bool link_up() const override { return network_.carrier() && PassingPort::link_up(); }
  /// Arriving frames do not pass here.
  void set_receiver(fabric::Receiver* receiver) override { below().set_receiver(receiver); }

 private:
  const HostPort& network_;
};

}  // namespace softhca::server
