// AKeys and RKeys: the memory, or the interrupt, that a descriptor names (SDXI 3.2.5, 3.3).
#pragma once

#include <cstdint>

#include "pcie/interrupts.h"
#include "sdxi/context_tables.h"
#include "sdxi/group.h"
#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// The requester's side. Every call reads the table, because software may change an entry at any
/// time by an update operation.
class AccessKeys {
 public:
  AccessKeys(const Registers& registers, const FunctionMemory& memory, pcie::Interrupts& interrupts,
             const FunctionGroup& group, const GroupMember& self)
      : registers_(registers),
        memory_(memory),
        interrupts_(interrupts),
        group_(group),
        self_(self) {}

  /// The address space of buffer number `buffer`, for which the descriptor names AKey `akey`.
  Checked<AddressSpace> memory(const ContextEntry& context, std::uint16_t akey,
                               std::uint8_t buffer) const;
  /// The interrupt that AKey `akey` names (SDXI 6.4).
  Checked<InterruptTarget> interrupt(const ContextEntry& context, std::uint16_t akey) const;

 private:
  Checked<void> read(const ContextEntry& context, std::uint16_t akey, std::uint8_t buffer,
                     const util::MutableView<spec::akey_ent>& out) const;
  Checked<void> load(const ContextEntry& context, std::uint16_t akey, std::uint8_t buffer,
                     const util::MutableView<spec::akey_ent>& out) const;
  /// SDXI 3.3.4 steps 1 and 2.
  Checked<GroupMember*> target(const util::View<spec::akey_ent>& entry, std::uint8_t buffer) const;

  const Registers& registers_;
  const FunctionMemory& memory_;
  pcie::Interrupts& interrupts_;
  const FunctionGroup& group_;
  const GroupMember& self_;
};

class ErrorLog;

/// The target's side: checks requests of other functions against this function's RKey table.
class ReceiverKeys {
 public:
  ReceiverKeys(const Registers& registers, const FunctionMemory& memory,
               pcie::Interrupts& interrupts, ErrorLog& log)
      : registers_(registers), memory_(memory), interrupts_(interrupts), log_(log) {}

  Checked<AddressSpace> admit_memory(const RemoteRequest& request) const;
  Checked<InterruptTarget> admit_interrupt(const RemoteRequest& request) const;

 private:
  Checked<void> read(const RemoteRequest& request,
                     const util::MutableView<spec::rkey_ent>& out) const;
  /// The function's own table is faulty (SDXI 3.3.4): the function logs it here, and so does the
  /// requester.
  tl::unexpected<Refusal> faulty_table(const RemoteRequest& request, Refusal refusal) const;

  const Registers& registers_;
  const FunctionMemory& memory_;
  pcie::Interrupts& interrupts_;
  ErrorLog& log_;
};

}  // namespace softhca::sdxi
