// The capture that `softhca serve --pcap` asks for.
#pragma once

#include <memory>

#include "cli/serve.h"
#include "fabric/capture.h"
#include "util/result.h"

namespace softhca::cli {

/// Null if there is to be none. @pre signals still end the process: opening a pipe waits for its
/// reader
util::Result<std::unique_ptr<fabric::Capture>> make_capture(const ServeOptions& options);

}  // namespace softhca::cli
