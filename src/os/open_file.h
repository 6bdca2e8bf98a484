// Locks of open files (fcntl(2), "Open file description locks"). Such a lock belongs to the open
// file, and ends when its last descriptor is closed, wherever that was copied to. Querying a lock
// does not acquire it.
#pragma once

#include "util/result.h"

namespace softhca::os {

/// Marks the open file behind a readable descriptor. Several open files may mark one file.
util::Result<void> mark_open(int fd);
/// Marks the open file behind a writable descriptor, unless another one has marked the file.
bool mark_alone(int fd);
/// Removes a mark, also for all copies of the descriptor.
void unmark(int fd);
/// True if another open file marks the file of `own`.
bool is_marked_open(int own);
/// Opens the same file again, with its own flags and locks. On failure -1 with errno.
int reopen(int fd, int flags);

}  // namespace softhca::os
