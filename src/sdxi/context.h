// One context as the function holds it while it runs, and which thread owns it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sdxi/context_control.h"
#include "sdxi/execution.h"
#include "sdxi/memory.h"
#include "util/clock.h"

namespace softhca::sdxi {

class ContextQueue;
class TurnTaker;

/// A stop of a context (SDXI 4.2.5 CXTV_STOPG_*).
struct ContextStop {
  bool begun = false;
  StopCause cause = StopCause::kLocal;
  bool hard = false;                     ///< never relaxed to a soft stop (SDXI 4.2.5)
  std::optional<util::Time> abort_at{};  ///< when outstanding descriptors are aborted
  FaultId hang = 0;                      ///< the injected fault that keeps the stop from ending
};

/// State of a context from its first doorbell after the start to its final state.
struct ContextRun {
  ContextEntry entry;
  std::uint64_t entry_age = 0;  ///< ContextSet::update_count() when the entry was read
  AddressSpace space;           ///< of the entry; valid for this turn
  std::byte* ring = nullptr;  ///< the ring, if it is one piece of local memory; valid for this turn
  std::uint64_t read_index = 0;
  std::uint64_t read_index_written = 0;  ///< value that CXT_STS.read_index holds
  std::uint64_t write_index = 0;         ///< as last read
  bool active = false;
  std::int64_t deficit = 0;  ///< work left in this turn, in bytes (budget.h)
  bool turn_is_cut =
      false;  ///< the last run() ended within the turn, which the next run() continues first
  Execution execution;
  // Waiting.
  bool waits_for_valid = false;   ///< the last turn found a descriptor that is not valid yet
  bool waits_for_others = false;  ///< a DSC_SYNC
  util::Duration valid_pause{};   ///< until the valid bit is read again
  util::Time wake_at{};           ///< in a WaitQueue
  util::Time held_until{};        ///< an injected fault holds the descriptor
  ContextStop stop;
};

/// Which thread, if any, looks for work of a context that is assigned to the workers.
enum class Attention : std::uint8_t {
  kNobody,  ///< no thread looks: a doorbell must queue the context
  kWorker,  ///< a worker looks: the context is queued, being worked on, or polled
  kRung,    ///< as kWorker, and a doorbell came since
  kAsleep,  ///< as kWorker, but the worker sleeps: a doorbell wakes it
};

struct Context : ContextRun {
  explicit Context(TurnTaker& owner) : home(owner) {}

  bool queued() const { return queue != nullptr; }
  /// Resets the run state; the owning thread does not change.
  void reset_run() { static_cast<ContextRun&>(*this) = ContextRun{}; }

  // Counters since the function was constructed.
  std::uint64_t descriptors = 0;  ///< completed, with or without error
  std::uint64_t bytes = 0;        ///< of the budget that was used

  // On its own cache line, so that a doorbell touches no line that a worker writes.
  alignas(64) std::atomic<Attention> attention = Attention::kNobody;
  /// True while the workers own it. Only the control thread changes it, while the gate is closed or
  /// no other thread has a pointer to the context.
  bool assigned = false;
  /// The queue that holds it. While the context is assigned, only the workers change it.
  const ContextQueue* queue = nullptr;
  Context* previous = nullptr;  ///< in that queue
  Context* next = nullptr;
  std::size_t wait_place = 0;      ///< in a WaitQueue, counted from 1; 0: in none
  Context* stop_before = nullptr;  ///< in a StopList
  Context* stop_after = nullptr;
  TurnTaker& home;
};

}  // namespace softhca::sdxi
