// The keys of `--device sdxi` and `sdxi-vf`: one table for the parser, the help and the
// documentation.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sdxi/options.h"
#include "util/result.h"

namespace softhca::server {

struct SdxiKey {
  std::string_view name;
  std::string_view values;  ///< what may follow the '='
  std::string_view what;
  std::string (*default_value)(const sdxi::DeviceOptions&);
  /// False: `value` is not one of `values`.
  bool (*apply)(sdxi::DeviceOptions&, std::string_view value);
  bool of_vfs = true;  ///< sdxi-vf has it too
};

std::span<const SdxiKey> sdxi_keys();

/// Applies one key; `vf`: the device is an sdxi-vf.
util::Result<void> apply_sdxi_key(sdxi::DeviceOptions& options, bool vf, std::string_view key,
                                  std::string_view value);
/// A line for each key, for --help.
std::string sdxi_keys_help();
/// A row for each key, for the documentation.
std::string sdxi_keys_page();

}  // namespace softhca::server
