// UNIX stream sockets by path: listening and connecting.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "util/clock.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

/// Who may connect, whatever the umask says.
struct SocketAccess {
  ::mode_t mode = 0600;
  std::optional<::gid_t> group;  ///< nothing: the process's
  /// For somebody who listens there still, since the processes of a server that was killed end a
  /// moment after it. Only for servers that start: who waits serves nobody.
  util::Duration patience = util::Duration::zero();
};

/// A non-blocking socket bound to `path`, which is the caller's to unlink; it does not listen yet,
/// so nobody has connected before `access` holds. A socket file that nobody listens on any more is
/// replaced. Fails in a directory where anybody could put another one in its place. `what` names it
/// in errors.
util::Result<UniqueFd> bind_unix(const std::string& path, const std::string& what,
                                 const SocketAccess& access = {});

/// A blocking socket connected to `path`.
util::Result<UniqueFd> connect_unix(const std::string& path, const std::string& what);

/// The same, not blocking and without waiting. None, with errno: EAGAIN if the backlog is full.
UniqueFd connect_at_once(const std::string& path);

/// As connect_unix(), if the process that listens there is of this user (SO_PEERCRED). Waits for
/// room in its backlog for `patience` at most; zero: as long as it takes.
util::Result<UniqueFd> connect_own(const std::string& path, const std::string& what,
                                   util::Duration patience);

}  // namespace softhca::vfio_user
