#include "run/fabric_options.h"

#include <CLI/CLI.hpp>

namespace softhca::run {

void add_fabric_options(CLI::App& command, FabricOptions& options) {
  auto* const name =
      command
          .add_option("--fabric", options.name,
                      "The network to use: all runs and environments of this user with the same "
                      "name share it. Guests join it by serve --port fabric:NAME")
          ->type_name("NAME")
          ->capture_default_str();
  command
      .add_flag("--private", options.own,
                "Use a new network, which no other run or environment shares")
      ->excludes(name);
  command
      .add_option("--pcap", options.pcap,
                  "Capture everything that crosses the network to this file (pcapng)")
      ->type_name("FILE");
  add_trunk_options(command, options.trunk);
}

util::Result<FabricSetup> FabricOptions::setup() const {
  auto others = trunk.setup(name);
  if (!others) return tl::unexpected(others.error());
  return FabricSetup{.pcap = pcap, .trunk = *std::move(others)};
}

}  // namespace softhca::run
