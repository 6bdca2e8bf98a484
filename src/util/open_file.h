// Whether anybody has an open file still: a lock of it goes with the last descriptor, wherever that
// was copied to (fcntl(2), "Open file description locks").
#pragma once

#include "util/result.h"

namespace softhca::util {

/// Marks the open file behind a descriptor that may be read.
Result<void> mark_open(int fd);
/// The file of `own` is marked by another open file.
bool is_marked_open(int own);
/// The same file, opened anew: with flags and locks of its own. -1 and errno: it is not to be had.
int reopen(int fd, int flags);

}  // namespace softhca::util
