// `softhca run`: several runs share one hub. The hub is in a process of its own, the keeper. The
// first run of a fabric starts the keeper, which ends with the last run.
//
// A run without a name belongs to fabric kDefaultFabric, so all runs of a user share one network.
//
// Each run stays connected to the keeper. The keeper ends, and a run looks for the keeper, only
// under the lock of the name: so there is exactly one keeper or none.
#pragma once

#include <functional>
#include <string>

#include "os/unique_fd.h"
#include "run/hub_host.h"
#include "util/result.h"

namespace softhca::run {

/// This run's connection to the keeper: closing it leaves; its end means that the hub has gone.
struct FabricMember {
  std::string directory;  ///< has the hub's socket
  os::UniqueFd keeper;
  std::string notice = {};  ///< a line for the user of the run that started the hub; empty: none
};

constexpr const char* kDefaultFabric = "default";

/// Fills a new directory before the hub starts to serve.
using PrepareFabric = std::function<util::Result<void>(const std::string& directory)>;

/// Finds the keeper of fabric `name`, or starts one with `setup`. Fails if a capture is requested
/// for an existing fabric, or hubs that it has not joined, or if other users can access the
/// fabric's directory. @pre the process has no threads but this one and a util::LogWriter's, and
/// signals kill it
util::Result<FabricMember> join_fabric(const std::string& name, const FabricSetup& setup,
                                       const PrepareFabric& prepare);

/// Leaves when the run is over. If it is the last run of its fabric, the capture is complete and
/// the directory is removed when this returns. Waits for a few seconds at most.
void leave_fabric(os::UniqueFd keeper);

}  // namespace softhca::run
