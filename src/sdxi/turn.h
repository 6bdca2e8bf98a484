// A turn: the piece of work that a context gets before the next one has its turn. Turns are taken
// by the control thread or by workers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sdxi/context.h"

namespace softhca::sdxi {

/// How a turn ended.
enum class Turn : std::uint8_t {
  kIdle,        ///< the ring is empty, or the context has ended
  kAgain,       ///< there is more to do
  kWaitValid,   ///< the next descriptor is not valid yet
  kWaitOthers,  ///< a DSC_SYNC waits; of the control thread only
  kHeld,        ///< by an injected fault; of the control thread only
  kHandBack,    ///< the control thread must go on
};

/// What a step of a turn says: how the turn ends, or nothing if it goes on.
using TurnEnd = std::optional<Turn>;

/// What each thread that takes turns has for itself.
struct ThreadState {
  static constexpr std::size_t kBatch = 32;

  bool worker = false;
  /// The turn is over after one descriptor: one that a worker could not do.
  bool one_descriptor = false;
  /// For copies between memory that is not local; a worker has none.
  std::span<std::byte> bounce{};
  // Of this turn.
  HeaderRules rules{};
  // Descriptors that were fetched together, in order, with vl set, and where the first one is if
  // the ring is local.
  alignas(64) std::array<std::array<std::byte, spec::kDescriptorSize>, kBatch> batch;
  std::byte* slots = nullptr;
  std::size_t taken = 0;
  std::size_t fetched = 0;
};

/// The contexts' function, as workers see it. Called inside the gate.
class TurnTaker {
 public:
  virtual ~TurnTaker() = default;
  /// One turn of a context that the caller alone works on.
  virtual Turn take_worker_turn(Context& context, ThreadState& thread) = 0;
  /// Where Write_Index is; null if it cannot be reached any more. Good until the gate is left.
  virtual const std::uint64_t* write_index_of(const Context& context) const = 0;
  /// The context is the control thread's again, which is to look soon.
  virtual void hand_back(Context& context) = 0;
};

}  // namespace softhca::sdxi
