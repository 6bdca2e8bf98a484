// Completion status blocks (SDXI 4.4, 6.1.2).
#pragma once

#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// How CST_BLK.signal is updated; good for a turn.
struct SignalRules {
  bool stores_zero = false;  ///< csr = 1 gets a plain 0
  bool atomic = false;       ///< the decrement may be an atomic request (SDXI 8.4)

  /// `signal` is local memory; `simple`: csr.
  void apply(std::uint64_t& signal, bool simple) const {
    if (simple && stores_zero) return __atomic_store_n(&signal, 0, __ATOMIC_RELEASE);
    if (atomic) return (void)__atomic_fetch_sub(&signal, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&signal, __atomic_load_n(&signal, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
  }
};

class Completions {
 public:
  Completions(const Registers& registers, const FunctionMemory& memory)
      : registers_(registers), memory_(memory) {}

  /// SDXI 4.4.2: csr = 0 asks for the atomic decrement; csr = 1 is content with a plain 0, and gets
  /// it where the function has the non-atomic capability. Where software has not enabled atomic
  /// requests (SDXI 8.4), the decrement is a read and a write: the Linux driver relies on it.
  SignalRules rules() const;

  /// The end of a descriptor that went well: CST_BLK.signal. Nothing to do if np is set. False if
  /// it cannot be updated; nothing has happened then.
  bool complete(const AddressSpace& space, util::View<spec::dsc_generic> descriptor) const;

  /// DescrErr:Cxt (SDXI 3.4): er, then signal. Errors on the way start no further actions.
  void complete_with_error(const AddressSpace& space,
                           util::View<spec::dsc_generic> descriptor) const;

  /// SignalErr:Cxt (SDXI 3.4), for complete() that was false: sets er as far as that is possible.
  static Refusal signal_error(const AddressSpace& space, util::View<spec::dsc_generic> descriptor);

 private:
  bool update_signal(const AddressSpace& space, Iova block, bool simple) const;

  const Registers& registers_;
  const FunctionMemory& memory_;
};

}  // namespace softhca::sdxi
