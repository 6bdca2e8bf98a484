// Sockets on which a peer sends bytes, and may send descriptors that do not belong there. The
// kernel would close those inside recv() or close(), which may then never return (see Janitor).
#pragma once

#include <sys/types.h>

#include <span>

#include "os/janitor.h"
#include "os/unique_fd.h"

namespace softhca::os {

/// Like recv() with MSG_DONTWAIT. Descriptors go to `janitor`.
ssize_t receive_bytes(int socket, std::span<char> bytes, Janitor& janitor);

/// Closes a connection. The peer sees its end immediately.
void close_connection(UniqueFd socket, Janitor& janitor);

}  // namespace softhca::os
