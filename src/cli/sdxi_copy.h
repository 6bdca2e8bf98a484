// `softhca sdxi copy`: a file moves through an SDXI function. The smallest whole program on
// driver/sdxi, and a first check of a function that one has just got running.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "util/result.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct SdxiCopyOptions {
  std::string from;
  std::string to;
  std::string socket;  ///< of a vfio-user server; empty: not there
  std::string pci;     ///< address of a function bound to vfio-pci; empty: not there
  std::uint64_t block_size = 1 << 20;
  unsigned blocks = 4;      ///< under way at a time
  bool interrupts = false;  ///< wait by interrupt instead of by polling
  bool verify = false;
  bool quiet = false;
};

struct SdxiCopyResult {
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool interrupted = false;  ///< by a signal: TO is as it was
};

/// Declares the command and its options, which fill `options`.
CLI::App* add_sdxi_copy(CLI::App& parent, SdxiCopyOptions& options);
/// Executes it: words for the user, and the exit status.
int run_sdxi_copy(const SdxiCopyOptions& options);

/// The work itself. TO appears whole or not at all.
util::Result<SdxiCopyResult> sdxi_copy(const SdxiCopyOptions& options);

}  // namespace softhca::cli
