// Decides where frames go in a switch whose link is not Ethernet.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/frame.h"

namespace softhca::fabric {

class Forwarder {
 public:
  struct Ways {
    std::vector<std::uint32_t> ports;  ///< egress ports, each once; none: the frame is dropped
    /// The only egress port for all frames from this ingress with the same LRH, until
    /// Switch::invalidate_flows().
    bool lasting = false;
  };

  virtual ~Forwarder() = default;
  /// The result is valid until the next call. `ingress` is the port that sent the frame. The
  /// frame's bytes are untrusted.
  virtual const Ways& route(const wire::Frame& frame, std::uint32_t ingress) = 0;
  /// Called when a receiver is attached to this port, or detached.
  virtual void handle_link(std::uint32_t port, bool up) = 0;
};

}  // namespace softhca::fabric
