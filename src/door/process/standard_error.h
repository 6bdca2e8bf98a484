// Where the library's log lines go: to standard error, which belongs to the program. If the program
// closes it, a file of the program's own gets the number, and a log line would be data in that
// file.
#pragma once

#include <string_view>

#include "util/log.h"

namespace softhca::door {

/// The program has just made descriptor 2 standard error: by its start, dup2() or freopen(). No
/// effect in a child that shares its parent's memory (vfork): the descriptor is the child's alone.
void note_standard_error();
/// In a forked child, which has its parent's standard error.
void keep_standard_error_in_child();
/// A sink of util::log. Drops the line if descriptor 2 is another file than at the last note.
void write_to_standard_error(util::LogLevel level, std::string_view text);

}  // namespace softhca::door
