// `softhca env`: gives a program the environment of `softhca run`, if `softhca run` cannot start
// it.
//
// It prints variables, and leaves a process that keeps the fabric while the environment's owner
// lives.
#pragma once

#include <optional>

#include "run/control_options.h"
#include "run/device_options.h"
#include "run/fabric_options.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct EnvOptions {
  run::FabricOptions fabric;
  run::DeviceOptions seen;
  run::ControlOptions control = {};
  std::optional<int> owner = {};  ///< process that owns the environment; nothing: the caller
  bool plain = false;             ///< print NAME=VALUE instead of shell syntax
};

CLI::App* add_env(CLI::App& app, EnvOptions& options);
/// Returns the exit status: 0, or 1 for an error.
int run_env(const EnvOptions& options);

}  // namespace softhca::cli
