// `softhca serve --isolate`: each group of devices in its own process. The switches, the capture,
// the socket files and the control socket are in the server.
#pragma once

#include <vector>

#include "cli/device_spec.h"
#include "cli/serve.h"
#include "util/result.h"
#include "vfio_user/unix_socket.h"

namespace softhca::cli {

/// Like serve(), which has checked the options. `switches`: the name of each device's switch.
util::Result<void> serve_isolated(const ServeOptions& options, const std::vector<DeviceSpec>& specs,
                                  const std::vector<std::string>& switches,
                                  const vfio_user::SocketAccess& access);

}  // namespace softhca::cli
