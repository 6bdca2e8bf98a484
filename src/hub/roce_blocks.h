// The blocks of QP numbers and communication IDs of the processes of a hub. A block is the upper 8
// bits of such a number. A process has the same block at all of its addresses.
//
// A block rests before another process gets it: packets for its last owner may still arrive, and
// peers go on sending them again for a while.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "util/clock.h"
#include "wire/ids.h"

namespace softhca::hub {

/// The upper 8 bits of a process's QP numbers and communication IDs.
using RoceBlock = std::uint8_t;
/// Bits of a QP number below its block.
inline constexpr unsigned kBlockShift = 16;
inline RoceBlock block_of(wire::Qpn qpn) {
  return static_cast<RoceBlock>(qpn.value() >> kBlockShift);  // no format: a range of numbers
}
inline std::uint32_t first_number_of(RoceBlock block) {
  return std::uint32_t{block} << kBlockShift;  // no format: as above
}
inline constexpr std::uint32_t kNumbersOfBlock = 1 << kBlockShift;  // no format: as above

class RoceBlocks {
 public:
  /// Numbers with upper bits 0 belong to no process: QP1 is among them.
  static constexpr unsigned kFirst = 1;
  static constexpr unsigned kLast = 255;
  static constexpr util::Duration kRest = std::chrono::seconds(10);

  /// A block that has rested, else one that was never used, the lowest first: each needs a socket.
  /// Nothing: all are in use or resting.
  std::optional<RoceBlock> take(util::Time now);
  /// @pre the block was taken
  void give_back(RoceBlock block, util::Time now) { resting_.push_back({block, now + kRest}); }
  /// The same for a block that no process got: it need not rest.
  void give_back_unused(RoceBlock block) { resting_.push_front({block, util::Time::min()}); }

 private:
  struct Resting {
    RoceBlock block;
    util::Time until;
  };

  unsigned next_ = kFirst;       ///< the lowest that was never used
  std::deque<Resting> resting_;  ///< the first to be rested in front
};

}  // namespace softhca::hub
