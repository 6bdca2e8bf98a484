// The directory of a run. If it is in /tmp, another user may create one of the same name after the
// run has ended.
#pragma once

namespace softhca::door {

/// Opens a directory of this user (O_PATH). -1 with errno: EACCES if it is another user's. Safe in
/// a signal handler.
int open_own_directory(const char* path);

}  // namespace softhca::door
