// The directories in which a run may create its own.
#pragma once

#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::run {

/// Candidates, best first. In each, no other user can replace this user's files.
///
/// If $XDG_RUNTIME_DIR is not the usual one, it is the only candidate: a session, a job or a test
/// that sets it wants isolation. Otherwise /run/user/UID comes first, which is the same in shells
/// without XDG_RUNTIME_DIR (su, cron, docker exec), then $TMPDIR and /tmp. If none is suitable, the
/// error gives the reasons. Warns once about a variable that is not used.
util::Result<std::vector<std::string>> run_bases();

/// Checks that `path` is a directory of this user that no other user can even read.
util::Result<void> check_private_directory(const std::string& path);

}  // namespace softhca::run
