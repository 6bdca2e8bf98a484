// Who may do what to which object (DevX, mlx5 driver interface): the checks of a command that
// carries the uid of a user context, and who owns what a command has made.
//
// A context changes, reads and destroys what it made, and makes objects of what it made. The kernel
// (uid 0) does all. What the kernel makes for all contexts (uid 0xFFFF) each of them may read and
// refer to: EQs for completions, Q counters. Doorbell pages, XRC domains and Q counters are
// referred to by anybody: the kernel tells contexts their numbers, and they give no access to
// memory.
#pragma once

#include "connectx/command/command.h"

namespace softhca::connectx {

/// Refuses what the uid of `command` does not allow.
/// @pre input and output are as long as the command table demands
CommandResult check_uid(Device& device, const Command& command);

/// After the command has succeeded.
void note_owner(Device& device, const Command& command);

}  // namespace softhca::connectx
