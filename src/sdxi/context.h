// One context as the function holds it while it runs, and who has it.
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

class TurnTaker;

/// From the doorbell after the start to the final state.
struct ContextRun {
  ContextEntry entry;
  std::uint64_t entry_age = 0;  ///< ContextSet::update_count() when the entry was read
  AddressSpace space;           ///< of the entry, for this turn
  std::byte* ring = nullptr;    ///< the ring, if it is one piece of local memory, for this turn
  std::uint64_t read_index = 0;
  std::uint64_t read_index_written = 0;  ///< what CXT_STS.read_index holds
  std::uint64_t write_index = 0;         ///< as last read
  bool active = false;
  std::int64_t deficit = 0;  ///< work that it may still do
  bool turn_is_cut = false;  ///< a run() ended before the turn: the rest of it comes first
  Execution execution;
  // Waiting.
  bool waits_for_valid = false;   ///< the last turn found a descriptor that is not valid yet
  bool waits_for_others = false;  ///< a DSC_SYNC
  util::Duration valid_pause{};   ///< until the valid bit is looked at again
  util::Time wake_at{};           ///< in a WaitQueue
  // SDXI 4.2.5 CXTV_STOPG_*.
  bool stopping = false;
  StopCause stop_cause = StopCause::kLocal;
  bool hard_stop = false;                ///< the completion-wait policy; never relaxed (SDXI 4.2.5)
  std::optional<util::Time> abort_at{};  ///< when outstanding descriptors are aborted
  // Injected faults: until when the descriptor is held back, and what keeps the stop from ending.
  util::Time held_until{};
  FaultId hang = 0;
};

/// Who looks for work of a context that is lent to the workers.
enum class Attention : std::uint8_t {
  kNobody,  ///< a doorbell is needed
  kWorker,  ///< it is queued, being worked on, or polled
  kRung,    ///< as kWorker, and a doorbell came since
  kAsleep,  ///< as kWorker, but that sleeps: a doorbell wakes it
};

struct Context : ContextRun {
  explicit Context(TurnTaker& owner) : home(owner) {}

  /// Back to the beginning; who has it stays.
  void reset_run() { static_cast<ContextRun&>(*this) = ContextRun{}; }

  // Counters since the function was made.
  std::uint64_t descriptors = 0;  ///< completed, with or without error
  std::uint64_t bytes = 0;        ///< of the budget that was used

  // On a cache line of their own: doorbells need no line that a worker writes.
  alignas(64) std::atomic<Attention> attention = Attention::kNobody;
  /// The workers have it. Changed by the control thread alone, while the gate is closed or nobody
  /// else knows of the context.
  bool lent = false;
  bool queued = false;             ///< in a ContextQueue; of a lent context the workers' business
  Context* next = nullptr;         ///< in that
  std::size_t wait_place = 0;      ///< in a WaitQueue, counted from 1; 0: in none
  Context* stop_before = nullptr;  ///< in a StopList
  Context* stop_after = nullptr;
  TurnTaker& home;
};

}  // namespace softhca::sdxi
