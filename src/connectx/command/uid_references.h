// The objects that a command refers to besides the one it changes, if a context can own them.
#pragma once

#include <cstdint>
#include <functional>

#include "connectx/base/user_contexts.h"
#include "connectx/command/command.h"

namespace softhca::connectx {

/// Called for each object. False: the sender of the command must not use it.
using Referred = std::function<bool(Owned kind, std::uint32_t number)>;

/// Calls `may_use` for each object that the input of `command` refers to. False: the sender must
/// not use one of them. Numbers without meaning in this command are skipped.
bool each_reference(const Command& command, const Referred& may_use);

/// True if only the kernel may send the command. It would give a process all of the host's memory,
/// or the kernel's role: keys of bus addresses, the reserved LKey, EQs, QP0, QP1 and the QP of the
/// kernel's UMRs, a source QPN of datagrams, counters of the port set to 0.
bool is_kernels(const Command& command);

/// True if the command resets the counters that it reads.
bool clears(const Command& command);

}  // namespace softhca::connectx
