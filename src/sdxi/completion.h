// Completion status blocks (SDXI 4.4, 6.1.2).
#pragma once

#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

class Completions {
 public:
  Completions(const Registers& registers, const FunctionMemory& memory)
      : registers_(registers), memory_(memory) {}

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
