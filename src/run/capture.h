// The capture of --pcap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fabric/capture.h"
#include "util/result.h"

namespace softhca::run {

struct CaptureOptions {
  std::string pcap;             ///< file to capture to; empty: none
  std::uint64_t pcap_size = 0;  ///< of each file; 0: no limit
  unsigned pcap_files = 0;      ///< files in the ring; 0: one file and no ring
};

/// Null if no capture is requested. @pre signals still kill the process: opening a pipe waits for
/// its reader
util::Result<std::unique_ptr<fabric::Capture>> make_capture(const CaptureOptions& options);

}  // namespace softhca::run
