// The network of a run, or of an environment: --fabric, --private, --pcap.
#pragma once

#include <string>

#include "run/keeper.h"

namespace CLI {
class App;
}

namespace softhca::run {

struct FabricOptions {
  std::string name = kDefaultFabric;
  bool own = false;  ///< a private network
  std::string pcap;  ///< file to capture to; empty: none
};

void add_fabric_options(CLI::App& command, FabricOptions& options);

}  // namespace softhca::run
