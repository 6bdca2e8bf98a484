#include "cli/run/fabric_options.h"

#include <CLI/CLI.hpp>

namespace softhca::cli {

void add_fabric_options(CLI::App& command, FabricOptions& options) {
  auto* const name =
      command
          .add_option("--fabric", options.name,
                      "The network, which all runs and environments of this user that name it "
                      "share; serve --port fabric:NAME joins it")
          ->type_name("NAME")
          ->capture_default_str();
  command
      .add_flag("--private", options.own,
                "A network of its own, that no other run or environment is on")
      ->excludes(name);
  command
      .add_option("--pcap", options.pcap,
                  "Capture everything that crosses the network to this file (pcapng)")
      ->type_name("FILE");
}

}  // namespace softhca::cli
