// Hubs of other machines, as this hub sees them: one port of its switch, behind which are their
// processes and guests (trunk/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "fabric/port.h"

namespace softhca::hub {

class OtherHubs {
 public:
  /// Whether the station to which this frame goes has no room, so that the frame should wait.
  using IsFull = std::function<bool(std::span<const std::byte> frame)>;
  enum class Received : std::uint8_t {
    kNothing,
    kFrames,
    kWaits,  ///< there is more, but a station has no room: call again soon
  };

  virtual ~OtherHubs() = default;
  /// Called once, by the hub. Frames come and go by `port`, until detach(). `raise` makes the hub
  /// call receive() soon.
  virtual void attach(std::unique_ptr<fabric::Port> port, IsFull is_full,
                      std::function<void()> raise) = 0;
  virtual void detach() = 0;
  /// Whether the number is another hub's: its block is (numbers.h).
  virtual bool has(unsigned number) const = 0;
  /// Whether this hub may give the number to a process.
  virtual bool may_give(unsigned number) const = 0;
  /// A process of this hub has joined or left.
  virtual void handle_member(unsigned number, bool is_there) = 0;
  /// Whether the sender of this frame must wait, because too much is under way to its destination.
  virtual bool must_wait(std::span<const std::byte> frame) = 0;
  /// Transmits the frames of a datagram, which the caller must deliver before it calls again.
  /// `frames`: how many they are.
  virtual Received receive(std::size_t& frames) = 0;
  /// Sends what the port was given.
  virtual void settle() = 0;
};

}  // namespace softhca::hub
