// `softhca sdxi copy`: moves a file through an SDXI function. It is the smallest complete program
// on driver/sdxi, and a first test of a new function.
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
  std::string socket;  ///< of a vfio-user server; empty: not used
  std::string pci;     ///< address of a function bound to vfio-pci; empty: not used
  std::uint64_t block_size = 1 << 20;
  unsigned blocks = 4;      ///< in flight at a time
  bool interrupts = false;  ///< wait by interrupt instead of by polling
  bool verify = false;
  bool quiet = false;
};

struct SdxiCopyResult {
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool interrupted = false;  ///< by a signal: TO is unchanged
};

/// Declares the command and its options, which fill `options`.
CLI::App* add_sdxi_copy(CLI::App& parent, SdxiCopyOptions& options);
/// Runs it: prints messages for the user, and returns the exit status.
int run_sdxi_copy(const SdxiCopyOptions& options);

/// Does the copy. TO is written completely or not at all.
util::Result<SdxiCopyResult> sdxi_copy(const SdxiCopyOptions& options);

}  // namespace softhca::cli
