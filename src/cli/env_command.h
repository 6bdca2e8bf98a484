// `softhca env`: what `softhca run` gives to a program, for those who cannot start it by that.
//
// It prints variables, and leaves behind a process that keeps the fabric while the owner of the
// environment lives.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/run/fabric_options.h"
#include "cli/run/seen_devices.h"

namespace softhca::cli {

struct EnvOptions {
  FabricOptions fabric;
  SeenDevices seen;
  std::string control;            ///< path of a control socket; empty: none
  std::optional<int> owner = {};  ///< a process; nothing: the one that has called us
  bool plain = false;             ///< NAME=VALUE, instead of words for a shell
};

CLI::App* add_env(CLI::App& app, EnvOptions& options);
/// The exit status: 0, or 1 for an error.
int run_env(const EnvOptions& options);

}  // namespace softhca::cli
