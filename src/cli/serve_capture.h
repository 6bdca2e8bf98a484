// The capture of `softhca serve --pcap`.
#pragma once

#include <memory>

#include "cli/serve.h"
#include "fabric/capture.h"
#include "util/result.h"

namespace softhca::cli {

/// Null if no capture is requested. @pre signals still kill the process: opening a pipe waits for
/// its reader
util::Result<std::unique_ptr<fabric::Capture>> make_capture(const ServeOptions& options);

}  // namespace softhca::cli
