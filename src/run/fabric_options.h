// The network of a run, or of an environment: --fabric, --private, --pcap, and --join
// (trunk_options.h).
#pragma once

#include <string>

#include "run/keeper.h"
#include "run/trunk_options.h"

namespace CLI {
class App;
}

namespace softhca::run {

struct FabricOptions {
  std::string name = kDefaultFabric;
  bool own = false;  ///< a private network
  std::string pcap;  ///< file to capture to; empty: none
  TrunkOptions trunk;

  /// Whether options for hubs of other machines are right, and what a new hub is to do.
  util::Result<FabricSetup> setup() const;
};

void add_fabric_options(CLI::App& command, FabricOptions& options);

}  // namespace softhca::run
