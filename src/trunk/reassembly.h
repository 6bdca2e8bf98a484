// Puts the pieces of large frames together. Memory is bounded: a new frame takes the place of the
// oldest one that is incomplete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trunk/datagram.h"

namespace softhca::trunk {

class Reassembly {
 public:
  /// The longest frame that crosses in pieces.
  static constexpr std::size_t kFrameMax = 16384;
  /// Incomplete frames at a time.
  static constexpr std::size_t kFrames = 16;

  /// The whole frame, if this was its last piece; valid until the next call. Else empty.
  std::span<const std::byte> add(const Piece& piece);
  /// Frames that were given up.
  std::uint64_t lost() const { return lost_; }

 private:
  struct Slot {
    bool used = false;
    std::uint32_t frame = 0;
    std::size_t received = 0;
    std::uint64_t began = 0;
    std::vector<std::byte> bytes;  ///< of the frame; keeps its memory
  };

  Slot& slot_of(const Piece& piece);

  std::array<Slot, kFrames> slots_;
  std::uint64_t begun_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace softhca::trunk
