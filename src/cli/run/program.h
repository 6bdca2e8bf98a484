// The program that `softhca run` runs: its environment, its start, what its end means.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace softhca::cli {

/// The path of libsofthca.so: $SOFTHCA_LIBRARY if that is set; else beside this program, or in
/// ../lib/softhca from there. Fails with the places that were looked at.
util::Result<std::string> find_library();

/// `before`, "NAME=value" each, with `library` preloaded before what was, and SOFTHCA_DOOR set to
/// `directory`; without what another run around this one has said of itself. What differs stands
/// last: kOwnVariables.
constexpr std::size_t kOwnVariables = 3;
std::vector<std::string> environment_for(const std::vector<std::string>& before,
                                         const std::string& library, const std::string& directory);
/// Those of `before` that environment_for() leaves out: the names.
std::vector<std::string> left_out_of(const std::vector<std::string>& before);
/// That of this process.
std::vector<std::string> own_environment();

/// Does not fail to start, it has a status then as a shell would give it.
struct Started {
  pid_t pid = -1;  ///< below 0: it has not started
  int status = 0;  ///< 127: there is no such program; 126: it cannot be run
  std::string reason;
};
/// Starts `words[0]`, looked for in PATH, with the descriptors of this process that stay open, and
/// with `signals` blocked.
Started start_program(const std::vector<std::string>& words,
                      const std::vector<std::string>& environment, const sigset_t& signals);

/// What a shell makes of a status of wait(): 128 and its number for a signal.
int exit_status(int status);

}  // namespace softhca::cli
