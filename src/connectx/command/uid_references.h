// Which objects a command refers to, besides the one that it changes: those that belong to
// somebody.
#pragma once

#include <cstdint>
#include <functional>

#include "connectx/base/user_contexts.h"
#include "connectx/command/command.h"

namespace softhca::connectx {

/// Called for an object. False: it is not for the sender of the command.
using Referred = std::function<bool(Owned kind, std::uint32_t number)>;

/// Calls `may_use` for each object to which the input of `command` refers. False: one is not for
/// its sender. Numbers that mean nothing in this command are left out.
bool each_reference(const Command& command, const Referred& may_use);

/// The command asks for what would give a process all of the host's memory, or the place of the
/// kernel: keys of bus addresses, the reserved LKey, EQs, QP0, QP1 and the QP of the kernel's UMRs.
bool is_kernels(const Command& command);

}  // namespace softhca::connectx
