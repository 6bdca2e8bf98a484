// `softhca run`: several runs, one hub. It lives in a process of its own, the keeper,
// which the first run of the name starts, and which ends with the last.
//
// A run without a name is of fabric kDefaultFabric: runs of one user are on one network.
//
// Each run is connected to the keeper while it lasts. The keeper looks for its end, and a run for
// the keeper, under the lock of the name: so there is one, or there is none.
#pragma once

#include <functional>
#include <string>

#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {

/// The connection of this run to the keeper: closing it is leaving, its end is that of the hub.
struct FabricMember {
  std::string directory;  ///< with the hub's socket
  vfio_user::UniqueFd keeper;
};

constexpr const char* kDefaultFabric = "default";

/// Fills a new directory before the hub serves.
using PrepareFabric = std::function<util::Result<void>(const std::string& directory)>;

/// Finds the keeper of fabric `name`, or starts one, with a capture to `pcap` (empty: none). Fails
/// if a capture is asked for and the fabric is there already, or if its directory is not this
/// user's alone. @pre the process has no thread but this and a util::LogWriter's, and signals end
/// it
util::Result<FabricMember> join_fabric(const std::string& name, const std::string& pcap,
                                       const PrepareFabric& prepare);

/// The run is over. If it is the last one of its fabric, the capture is written and the directory
/// is gone when this returns. Waits for a few seconds at most.
void leave_fabric(vfio_user::UniqueFd keeper);

}  // namespace softhca::cli
