// Completion status blocks (SDXI 4.4, 6.1.2).
#pragma once

#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// How CST_BLK.signal is updated; valid for one turn.
struct SignalRules {
  bool stores_zero = false;  ///< with csr = 1, a plain 0 is stored
  bool atomic = false;       ///< the decrement may be an atomic request (SDXI 8.4)

  /// `signal` is local memory; `simple` is the descriptor's csr.
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

  /// SDXI 4.4.2: csr = 0 asks for the atomic decrement. csr = 1 allows a plain 0, which is stored
  /// if the function has the non-atomic capability. If software has not enabled atomic requests
  /// (SDXI 8.4), the decrement is a read and a write: the Linux driver relies on it.
  SignalRules rules() const;

  /// Completes a descriptor without error: updates CST_BLK.signal, unless np is set. If it cannot
  /// be updated, returns false and changes nothing.
  bool complete(const AddressSpace& space, util::View<spec::dsc_generic> descriptor) const;

  /// DescrErr:Cxt (SDXI 3.4): sets er, then updates signal. A failure of either starts no further
  /// action.
  void complete_with_error(const AddressSpace& space,
                           util::View<spec::dsc_generic> descriptor) const;

  /// SignalErr:Cxt (SDXI 3.4), after complete() returned false: sets er if it can be written.
  static Refusal signal_error(const AddressSpace& space, util::View<spec::dsc_generic> descriptor);

 private:
  bool update_signal(const AddressSpace& space, Iova block, bool simple) const;

  const Registers& registers_;
  const FunctionMemory& memory_;
};

}  // namespace softhca::sdxi
