// Sees the frames of a switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/frame.h"

namespace softhca::fabric {

class Tap {
 public:
  virtual ~Tap() = default;
  /// A port begins to exist; a later port may have the number of one that is gone. `link`: of all
  /// its frames.
  virtual void handle_port(std::uint32_t port, std::string_view name, wire::Link link) = 0;
  /// Called once for each frame that the switch carries, whatever becomes of it, in order.
  virtual void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) = 0;
  /// Bytes of frames that it has room for. Who can wait until there are more loses none of them.
  virtual std::size_t room() const { return SIZE_MAX; }
  /// Bytes that it has done with: where they do not grow, nobody need wait for it.
  virtual std::uint64_t taken() const { return 0; }
};

}  // namespace softhca::fabric
