// The program of `softhca run`: its environment, its start, and its exit status.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace softhca::run {

/// The path of libsofthca.so: $SOFTHCA_LIBRARY if set; else beside this executable, or in
/// ../lib/softhca relative to it. The error lists the places searched.
util::Result<std::string> find_library();

/// Derives an environment from `before` ("NAME=value" each). `library` is put in front of the
/// preloaded libraries, and SOFTHCA_DOOR is set to `directory`. Variables of an enclosing run are
/// removed. Changed variables come last: kOwnVariables.
constexpr std::size_t kOwnVariables = 3;
std::vector<std::string> environment_for(const std::vector<std::string>& before,
                                         const std::string& library, const std::string& directory);
/// The names of those of `before` that environment_for() removes.
std::vector<std::string> left_out_of(const std::vector<std::string>& before);
/// The environment of this process.
std::vector<std::string> own_environment();

/// Never an error: if the program cannot be started, it has a status as in a shell.
struct Started {
  pid_t pid = -1;  ///< negative: not started
  int status = 0;  ///< 127: there is no such program; 126: it cannot be run
  std::string reason;
};
/// Starts `words[0]`, searched in PATH, with this process's inheritable descriptors and with
/// `signals` blocked.
Started start_program(const std::vector<std::string>& words,
                      const std::vector<std::string>& environment, const sigset_t& signals);

/// Converts a status of wait() like a shell: 128 plus the number for a signal.
int exit_status(int status);

}  // namespace softhca::run
