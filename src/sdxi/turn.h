// A turn: the share of work that a context gets before the next context has its turn. The control
// thread or a worker takes it.
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
  kWaitOthers,  ///< a DSC_SYNC waits; control thread only
  kHeld,        ///< an injected fault holds the context; control thread only
  kHandBack,    ///< the control thread must continue
};

/// Result of a step of a turn: how the turn ends, or nothing if it continues.
using TurnEnd = std::optional<Turn>;

/// State of one thread that takes turns.
struct ThreadState {
  bool worker = false;
  /// End the turn after one descriptor: the one that a worker could not execute.
  bool one_descriptor = false;
  /// For a worker: reports whether other contexts or the control thread wait. Null: the caller
  /// checks for other work after every turn.
  Workers* pool = nullptr;
  /// A worker that also polls other rings between turns.
  bool watches = false;
  /// Bounce buffer for copies between memory that is not local; empty for a worker.
  std::span<std::byte> bounce{};
  // For the current turn.
  bool begins = true;  ///< new descriptors may begin: the function is not stopping (SDXI 4.1.4)
  HeaderRules rules{};
  ExpressTurn express{};
};

/// The function of a context, as workers see it. Called inside the gate.
class TurnTaker {
 public:
  virtual ~TurnTaker() = default;
  /// Takes one turn of a context that only the caller works on.
  virtual Turn take_worker_turn(Context& context, ThreadState& thread) = 0;
  /// The address of Write_Index; null if it is no longer reachable. Valid until the gate is left.
  virtual const std::uint64_t* write_index_of(const Context& context) const = 0;
  /// Returns the context to the control thread, which must look at it soon.
  virtual void hand_back(Context& context) = 0;
};

}  // namespace softhca::sdxi
