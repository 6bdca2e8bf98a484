// UNIX stream sockets by path: listening and connecting.
#pragma once

#include <string>

#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

/// A non-blocking socket bound to `path`, which is the caller's to unlink; it does not listen yet.
/// A socket file that nobody listens on any more is replaced. `what` names it in errors.
util::Result<UniqueFd> bind_unix(const std::string& path, const std::string& what);

/// A blocking socket connected to `path`.
util::Result<UniqueFd> connect_unix(const std::string& path, const std::string& what);

}  // namespace softhca::vfio_user
