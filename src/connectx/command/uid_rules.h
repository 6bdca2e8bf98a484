// Access rules of user contexts (DevX, mlx5 driver interface 7.11): the checks of a command that
// carries a uid, and the owners of the objects that commands create.
//
// - A context changes, reads and destroys the objects that it created, and refers to them in new
//   ones.
// - The kernel (uid 0) may do everything.
// - Every context may read and refer to objects that the kernel creates for all contexts (uid
//   0xFFFF): EQs for completions, Q counters.
// - Every context may refer to the kernel's doorbell pages and Q counters, and to XRC domains in
//   initiators: the kernel gives out their numbers, and they give no access to memory.
// - A doorbell page of another context is refused: the queue would keep the page, and the page the
//   context. A set of Q counters of another context is refused too: its owner would read the
//   errors of foreign queues.
// - An XRC target reaches the memory of all SRQs in its domain, and a request to it may name each
//   of these SRQs. So the domain of both must be the context's own.
#pragma once

#include "connectx/command/command.h"

namespace softhca::connectx {

/// Refuses what the uid of `command` does not allow.
/// @pre input and output are as long as the command table demands
CommandResult check_uid(DriverState& driver, const Command& command);

/// Records the new owner. Call it after the command has succeeded.
void note_owner(DriverState& driver, const Command& command);

}  // namespace softhca::connectx
