// The objects to which a command refers, apart from the one that it changes. Only kinds of objects
// that a context can own count.
#pragma once

#include <cstdint>
#include <functional>

#include "connectx/base/user_contexts.h"
#include "connectx/command/command.h"

namespace softhca::connectx {

/// Called for each object. False if the sender of the command must not use it.
using Referred = std::function<bool(Owned kind, std::uint32_t number)>;

/// Calls `may_use` for each object that the input of `command` refers to. False if the sender must
/// not use one of them. Numbers that have no meaning in this command are skipped. The layouts
/// declare the fields (spec/connectx/command_role.h), except for those that depend on more than one
/// other field, and lists.
bool each_reference(const Command& command, const Referred& may_use);

/// True if only the kernel may send the command. Such a command would give a process access to all
/// of the host's memory, or the kernel's role: keys of bus addresses, the reserved LKey, EQs, QP0,
/// QP1 and the QP of the kernel's UMRs, a source QPN of datagrams, clearing counters of the port.
bool is_kernels(const Command& command);

/// True if the command resets the counters that it reads.
bool clears(const Command& command);

}  // namespace softhca::connectx
