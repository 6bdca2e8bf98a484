// A turn: the piece of work that a context gets before the next one has its turn. Turns are taken
// by the control thread or by workers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sdxi/context.h"
#include "sdxi/express_turn.h"

namespace softhca::sdxi {

class Workers;

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
  bool worker = false;
  /// The turn is over after one descriptor: one that a worker could not do.
  bool one_descriptor = false;
  /// Of a worker: who knows whether others want it. Null: no turn follows without a look at these.
  Workers* pool = nullptr;
  /// A worker looks at other rings too, between turns.
  bool watches = false;
  /// For copies between memory that is not local; a worker has none.
  std::span<std::byte> bounce{};
  // Of this turn.
  bool begins = true;  ///< new descriptors may be started: the function does not stop (SDXI 4.1.4)
  HeaderRules rules{};
  ExpressTurn express{};
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
