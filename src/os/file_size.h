// Growing files without SIGXFSZ: beyond RLIMIT_FSIZE (`ulimit -f`), which also applies to memfds,
// the kernel sends that signal, and it ends the process. These calls fail instead.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "util/result.h"

namespace softhca::os {

/// Sets the size of the file to `size` bytes. The error message begins with `what`, and errno says
/// the same.
util::Result<void> set_file_size(int fd, std::size_t size, std::string_view what);

/// Writes all of `bytes` at `offset`. False with errno: EFBIG if the limit forbids it.
bool write_at(int fd, std::span<const std::byte> bytes, off_t offset);

/// Raises the soft limit to the hard one.
void raise_file_size_limit();

}  // namespace softhca::os
