// Descriptor operations (SDXI 6): the table of all of them, and what one may use while it executes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "pcie/interrupts.h"
#include "sdxi/context_control.h"
#include "sdxi/context_tables.h"
#include "sdxi/group.h"
#include "sdxi/injected.h"
#include "sdxi/keys.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

struct Operation;

/// A descriptor under way: its copy, taken once, and how far it has come.
struct Execution {
  alignas(8) std::array<std::byte, spec::kDescriptorSize> descriptor{};
  const Operation* operation = nullptr;
  std::uint64_t index = 0;   ///< in the ring
  std::uint64_t done = 0;    ///< bytes or contexts that are finished
  std::uint64_t ticket = 0;  ///< DSC_SYNC: doorbells to wait for, plus one
  bool executing = false;
  Injected injected;

  template <class Layout>
  util::View<Layout> as() const {
    return util::View<Layout>(descriptor);
  }
};

/// What an operation may use; nothing else of the function.
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
  std::span<std::byte> bounce;  ///< for copies between memory that is not local
  /// Bytes that may still be worked on in this turn; an operation subtracts what it used.
  std::int64_t budget;
  bool other_function = false;  ///< set by an operation that acted on one: it may have work now
};

enum class Progress : std::uint8_t {
  kDone,
  kMore,     ///< the budget ended first
  kWaiting,  ///< for other contexts
};

struct Operation {
  /// How the header's bits must be (SDXI 6).
  enum class Bit : std::uint8_t { kFree, kZero, kOne };

  spec::dsc_type type;
  std::uint8_t subtype;
  std::string_view name;
  std::string_view section;
  Bit se;
  Bit fe;
  bool minimal;  ///< of the minimal atomic set too
  Checked<Progress> (*execute)(Work&, Execution&);
};

/// All operations, sorted by type and subtype.
std::span<const Operation> operations();
/// Null: the document defines no such operation.
const Operation* find_operation(std::uint32_t type, std::uint32_t subtype);
/// True for DSC_INTR and DSC_ADM_INTR.
bool raises_interrupt(const Operation& operation);

/// SDXI 5.3, parsing step 6: type, subtype, chain, fence and sequential fields for this context.
Checked<const Operation*> check_header(const Registers& registers, const ContextEntry& context,
                                       util::View<spec::dsc_header> header);

// dma_base.cc
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
/// After the completion block is written: rings the started contexts if dv is set (SDXI 6.6.3).
void signal_started(Work& work, const Execution& execution);
// admin_update.cc
Checked<Progress> execute_function_update(Work& work, Execution& execution);
Checked<Progress> execute_context_update(Work& work, Execution& execution);
Checked<Progress> execute_akey_update(Work& work, Execution& execution);
Checked<Progress> execute_rkey_update(Work& work, Execution& execution);
// admin_sync.cc
Checked<Progress> execute_sync(Work& work, Execution& execution);

}  // namespace softhca::sdxi
