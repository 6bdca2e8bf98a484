// A sandboxed process that serves some of a server's devices: see docs/isolation.md.
#pragma once

#include "server/isolate/process_options.h"

namespace softhca::server {

/// Serves until the server closes the channel. Returns the exit status.
int run_process(const ProcessOptions& options);

}  // namespace softhca::server
