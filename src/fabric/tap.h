// Observes the frames of a switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/frame.h"

namespace softhca::fabric {

class Tap {
 public:
  virtual ~Tap() = default;
  /// A port was created, which may reuse the number of a destroyed one. `link` is the link of all
  /// its frames.
  virtual void handle_port(std::uint32_t port, std::string_view name, wire::Link link) = 0;
  /// Called once, in order, for each frame that the switch carries, whether it is delivered or
  /// dropped.
  virtual void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) = 0;
  /// Bytes of frames that the tap has room for. A switch that waits for room loses none of them.
  virtual std::size_t room() const { return SIZE_MAX; }
  /// Bytes that the tap has processed: if the number does not grow, waiting for it is pointless.
  virtual std::uint64_t taken() const { return 0; }
};

}  // namespace softhca::fabric
