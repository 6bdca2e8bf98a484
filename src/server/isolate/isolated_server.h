// `softhca serve --isolate`: each group of devices in its own process. The switches, the capture,
// the socket files and the control socket are in the server.
#pragma once

#include <vector>

#include "os/unix_socket.h"
#include "server/device_spec.h"
#include "server/serve.h"
#include "util/result.h"

namespace softhca::server {

/// Like serve(), which has checked the options. `switches`: the name of each device's switch.
util::Result<void> serve_isolated(const ServeOptions& options, const std::vector<DeviceSpec>& specs,
                                  const std::vector<std::string>& switches,
                                  const os::SocketAccess& access);

}  // namespace softhca::server
