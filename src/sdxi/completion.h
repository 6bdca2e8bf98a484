// Completion status blocks (SDXI 4.4, 6.1.2).
#pragma once

#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// The end of a descriptor that went well: CST_BLK.signal. Nothing to do if np is set. False if it
/// cannot be updated; nothing has happened then.
bool complete(const Registers& registers, const AddressSpace& space,
              util::View<spec::dsc_generic> descriptor);

/// SignalErr:Cxt (SDXI 3.4), for complete() that was false: sets er as far as that is possible.
Refusal signal_error(const AddressSpace& space, util::View<spec::dsc_generic> descriptor);

/// DescrErr:Cxt (SDXI 3.4): er, then signal. Errors on the way start no further actions.
void complete_with_error(const Registers& registers, const AddressSpace& space,
                         util::View<spec::dsc_generic> descriptor);

}  // namespace softhca::sdxi
