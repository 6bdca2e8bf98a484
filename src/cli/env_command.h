// `softhca env`: what `softhca run` gives to a program, for those who cannot start it by that.
//
// It prints variables, and leaves behind a process that keeps the fabric while the owner of the
// environment lives.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/run/seen_devices.h"

namespace softhca::cli {

struct EnvOptions {
  std::string fabric;  ///< that it shares with runs; empty: one for the owner
  std::string pcap;    ///< file to capture to; empty: none
  SeenDevices seen;
  std::string control;  ///< path of a control socket; empty: none
  int owner = 0;        ///< a process; 0: the one that has called us
  bool plain = false;   ///< NAME=VALUE, instead of words for a shell
};

CLI::App* add_env(CLI::App& app, EnvOptions& options);
/// The exit status: 0, or 1 for an error.
int run_env(const EnvOptions& options);

}  // namespace softhca::cli
