// `softhca run --fabric NAME`: several runs, one hub. It lives in a process of its own, the keeper,
// which the first run of the name starts, and which ends with the last.
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

/// Finds the keeper of fabric `name`, or starts one, with a capture to `pcap` (empty: none).
/// `prepare` fills a new directory before the hub serves. Fails if a capture is asked for and the
/// fabric is there already. @pre the process has no thread but this and a util::LogWriter's, and
/// signals end it
util::Result<FabricMember> join_fabric(
    const std::string& name, const std::string& pcap,
    const std::function<util::Result<void>(const std::string& directory)>& prepare);

}  // namespace softhca::cli
