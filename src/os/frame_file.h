// A descriptor by which Ethernet frames enter and leave the kernel, at one network interface.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::os {

class FrameFile {
 public:
  /// Room that any received frame fits into, besides those that the kernel merges to more than
  /// 64 KiB.
  static constexpr std::size_t kRoom = std::size_t{66} << 10;
  /// Most pieces of a frame.
  static constexpr std::size_t kPiecesMax = 40;

  enum class Sent : std::uint8_t {
    kSent,
    kFull,        ///< the kernel's queue is full
    kTooLong,     ///< longer than the interface's MTU permits
    kDown,        ///< the interface is down, or has gone
    kUnreadable,  ///< its memory is not there any more
    kRefused,     ///< any other error
  };

  /// Work on a received frame that the kernel has left to its receiver.
  struct Rest {
    /// If `checksum`: the sum of all bytes from `start` on belongs, inverted, to `start` +
    /// `offset`, which holds the sum of the pseudo header.
    bool checksum = false;
    std::uint16_t start = 0;
    std::uint16_t offset = 0;
    /// Not 0: the frame is several packets, merged, with this many bytes of payload.
    std::uint16_t segment = 0;
    bool tcp = false;  ///< these are of TCP; otherwise of UDP
  };

  struct Received {
    enum class Status : std::uint8_t {
      kFrame,
      kNothing,  ///< no frame waits
      kTooLong,  ///< a frame has no room, and is lost
      kUnfit,    ///< a frame of a kind that cannot be received, and is lost
      kGone,     ///< the interface has gone: nothing comes any more
    };
    Status status = Status::kNothing;
    std::span<std::byte> frame;  ///< inside the room
    Rest rest;
  };

  virtual ~FrameFile() = default;

  /// Becomes readable when frames wait.
  virtual int fd() const = 0;
  /// Index of the interface.
  virtual unsigned interface() const = 0;

  /// Sends the frame that consists of these pieces, without its FCS. Never waits.
  /// @pre at most kPiecesMax pieces
  virtual Sent send(std::span<const iovec> pieces) = 0;
  /// Takes the next frame, without its FCS. Never waits. @pre room.size() >= kRoom
  virtual Received receive(std::span<std::byte> room) = 0;
  /// Frames so far that the kernel had no room for before they were received, if it counts them
  /// here.
  virtual std::uint64_t lost() { return 0; }
};

}  // namespace softhca::os
