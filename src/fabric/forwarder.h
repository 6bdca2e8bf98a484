// Where frames go in a switch whose link is not Ethernet.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/frame.h"

namespace softhca::fabric {

class Forwarder {
 public:
  struct Ways {
    std::vector<std::uint32_t>
        ports;  ///< by which the frame leaves, each once; none: it is dropped
    /// One port, and all that this ingress sends with the same LRH goes there, until
    /// Switch::forget_ways().
    bool lasting = false;
  };

  virtual ~Forwarder() = default;
  /// What it returns is looked at until the next call. `ingress` is the port that has sent the
  /// frame, whose bytes are hostile.
  virtual const Ways& route(const wire::Frame& frame, std::uint32_t ingress) = 0;
  /// Somebody begins to listen at this port, or nobody does any more.
  virtual void handle_link(std::uint32_t port, bool up) = 0;
};

}  // namespace softhca::fabric
