// UNIX stream sockets by path: listening and connecting.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "os/unique_fd.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::os {

/// Permissions to connect, regardless of the umask.
struct SocketAccess {
  ::mode_t mode = 0600;
  std::optional<::gid_t> group;  ///< none: the group of the process
  /// How long bind_unix() waits for a listener to disappear: the processes of a killed server end a
  /// moment after it. Only for servers that are starting, because the wait blocks.
  util::Duration patience = util::Duration::zero();
};

/// Returns a non-blocking socket bound to `path`, which the caller must unlink. It does not listen
/// yet, so no client connects before `access` is set. A socket file without a listener is replaced.
/// Fails in a directory where any user could replace the file. `what` names the socket in errors.
util::Result<UniqueFd> bind_unix(const std::string& path, const std::string& what,
                                 const SocketAccess& access = {});

/// Returns a blocking socket connected to `path`.
util::Result<UniqueFd> connect_unix(const std::string& path, const std::string& what);

/// The same, non-blocking and without waiting. On failure empty, with errno: EAGAIN if the backlog
/// is full.
UniqueFd connect_at_once(const std::string& path);

/// Like connect_unix(), but only to a listener whose process is of this user (SO_PEERCRED). Waits
/// for room in the backlog for at most `patience`; zero: without limit.
util::Result<UniqueFd> connect_own(const std::string& path, const std::string& what,
                                   util::Duration patience);

}  // namespace softhca::os
