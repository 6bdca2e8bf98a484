// The directories in which a run may make one of its own.
#pragma once

#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::cli {

/// Best first. Only this user can replace what this user makes in one of them.
///
/// $XDG_RUNTIME_DIR, and nothing else if it is not the usual one: a session, a job or a test that
/// sets it keeps to itself. Otherwise /run/user/UID, which is the same in shells that have no
/// XDG_RUNTIME_DIR (su, cron, docker exec), then $TMPDIR and /tmp. Fails with the reasons if none
/// is fit; warns, once, of a variable that is not used.
util::Result<std::vector<std::string>> run_bases();

/// `path` is a directory of this user that no other user may even read. Fails with the reason.
util::Result<void> check_private_directory(const std::string& path);

}  // namespace softhca::cli
