// Descriptor operations (SDXI 6): their table, and the parts of the function that they use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "pcie/interrupts.h"
#include "sdxi/context_control.h"
#include "sdxi/context_tables.h"
#include "sdxi/execution.h"
#include "sdxi/group.h"
#include "sdxi/keys.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"
#include "sdxi/turn.h"

namespace softhca::sdxi {

/// The parts of the function that an operation may use.
struct Work {
  const Registers& registers;
  const ContextEntry& context;
  AddressSpace space;  ///< the context's own: ring, completion blocks, atomic return data
  const AccessKeys& keys;
  pcie::Interrupts& interrupts;
  // For AdminGrp.
  ContextControl& contexts;
  GroupMember& self;
  const FunctionGroup& group;
  const ThreadState&
      thread;  ///< the thread that executes it: its bounce buffer, and the workers that help
  bool atomic_requests;  ///< whether software has enabled them (SDXI 8.4)
  /// Bytes of work left in this turn; an operation subtracts what it used.
  std::int64_t budget;
  bool other_function =
      false;  ///< set by an operation that acted on another function, which may have work now
};

enum class Progress : std::uint8_t {
  kDone,
  kMore,     ///< the budget ended first
  kWaiting,  ///< until other contexts have stopped, or doorbells have been evaluated
};

struct Operation {
  /// The value that a bit of the header must have (SDXI 6).
  enum class Bit : std::uint8_t { kFree, kZero, kOne };

  spec::dsc_type type;
  std::uint8_t subtype;
  std::string_view name;
  std::string_view section;
  Bit se;
  Bit fe;
  bool minimal = false;    ///< also in the minimal atomic set
  bool by_worker = false;  ///< worker threads may execute it
  /// Software that receives the interrupt may read Read_Index.
  bool raises_interrupt = false;
  // The rules above, as bits of the header's first word and of MMIO_CAP1.opb_000_cap.
  std::uint32_t header_mask = 0;
  std::uint32_t header_value = 0;
  std::uint32_t groups = 0;  ///< any of these bits makes it usable; 0: always usable
  Checked<Progress> (*execute)(Work&, Execution&) = nullptr;
};

/// All operations, sorted by type and subtype.
std::span<const Operation> operations();
/// Null if the document defines no such operation.
const Operation* find_operation(std::uint32_t type, std::uint32_t subtype);
/// True for DSC_INTR and DSC_ADM_INTR.
bool raises_interrupt(const Operation& operation);

HeaderRules header_rules(const Registers& registers, const ContextEntry& context);

/// The rules by which accept_header() accepts a header of a DmaBaseGrp operation, as one
/// comparison.
HeaderPattern header_pattern(const HeaderRules& rules, spec::dma_base_subtype subtype);

/// The operation, if check_header() would accept the header; else null: check_header() gives the
/// reason.
const Operation* accept_header(const HeaderRules& rules, util::View<spec::dsc_header> header);

/// SDXI 5.3, parsing step 6: checks type, subtype, chain, fence and sequential fields for this
/// context.
Checked<const Operation*> check_header(const Registers& registers, const ContextEntry& context,
                                       util::View<spec::dsc_header> header);

// dma_base.cc
/// SDXI 6.2.3, 6.2.4: the largest buffer in bytes: the smallest limit of context, function and
/// capability.
std::uint64_t max_buffer_bytes(const Registers& registers, const ContextEntry& context);
Checked<Progress> execute_nop(Work& work, Execution& execution);
Checked<Progress> execute_write_immediate(Work& work, Execution& execution);
Checked<Progress> execute_copy(Work& work, Execution& execution);
Checked<Progress> execute_repeat_copy(Work& work, Execution& execution);
// atomic.cc
Checked<Progress> execute_atomic(Work& work, Execution& execution);
// interrupt.cc
Checked<Progress> execute_interrupt(Work& work, Execution& execution);
Checked<Progress> execute_admin_interrupt(Work& work, Execution& execution);
// admin_start_stop.cc
Checked<Progress> execute_start_normal(Work& work, Execution& execution);
Checked<Progress> execute_start_resume(Work& work, Execution& execution);
Checked<Progress> execute_stop(Work& work, Execution& execution);
/// Called after the completion block is written: rings the started contexts if dv is set (SDXI
/// 6.6.3). Returns how many.
std::int64_t signal_started(Work& work, const Execution& execution);
// admin_update.cc
Checked<Progress> execute_function_update(Work& work, Execution& execution);
Checked<Progress> execute_context_update(Work& work, Execution& execution);
Checked<Progress> execute_akey_update(Work& work, Execution& execution);
Checked<Progress> execute_rkey_update(Work& work, Execution& execution);
// admin_sync.cc
Checked<Progress> execute_sync(Work& work, Execution& execution);

}  // namespace softhca::sdxi
