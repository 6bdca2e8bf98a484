// Descriptors of the library in a process that belongs to a program. They have high numbers,
// because the program may need low ones (below FD_SETSIZE). They are recorded, so that a program
// that closes all unknown descriptors closes none of them.
#pragma once

namespace softhca::os {

/// Returns a recorded copy of `fd` with a high number, or with any but those of standard
/// descriptors if no high one is free. On failure -1 with errno.
int keep_copy(int fd);
/// Safe in a signal handler, as are all functions below.
bool is_kept(int fd);
/// The first recorded descriptor from `fd` on; -1 if there is none.
int next_kept(int fd);
/// Removes a descriptor that is being closed.
void forget_kept(int fd);
/// For a forked child: closes the descriptors, which belong to its parent.
void close_all_kept();

}  // namespace softhca::os
