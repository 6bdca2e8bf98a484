// The descriptors of the library itself in a process that is another's. They have high numbers,
// since low ones are the program's, which may have to keep to FD_SETSIZE. And they are noted, so
// that a program that closes all it does not know closes none of them.
#pragma once

namespace softhca::util {

/// A copy of `fd` with a high number, or any if there is no room, which is noted. -1 and errno:
/// there is none.
int keep_copy(int fd);
/// Safe in a handler of a signal, as all below.
bool is_kept(int fd);
/// The first of those from `fd` on; -1: there is none.
int next_kept(int fd);
/// It is being closed.
void forget_kept(int fd);
/// In a child that was forked: they are its parent's.
void close_all_kept();

}  // namespace softhca::util
