// Locks of open files (fcntl(2), "Open file description locks"). Such a lock belongs to the open
// file and ends with its last descriptor, wherever that was copied to. Looking at one takes
// nothing.
#pragma once

#include "util/result.h"

namespace softhca::util {

/// Marks the open file behind a descriptor that may be read. Several may mark one file.
Result<void> mark_open(int fd);
/// Marks the open file behind a descriptor that may be written, if no other has marked the file.
bool mark_alone(int fd);
/// Ends a mark, also for all copies of the descriptor.
void unmark(int fd);
/// The file of `own` is marked by another open file.
bool is_marked_open(int own);
/// The same file, opened anew: with flags and locks of its own. -1 and errno: it is not to be had.
int reopen(int fd, int flags);

}  // namespace softhca::util
