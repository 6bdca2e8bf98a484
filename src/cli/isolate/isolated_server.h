// `softhca serve --isolate`: each group of devices in a process of its own. The switches, the
// capture, the sockets' files and the control socket are here.
#pragma once

#include <vector>

#include "cli/device_spec.h"
#include "cli/serve.h"
#include "util/result.h"
#include "vfio_user/unix_socket.h"

namespace softhca::cli {

/// As serve(), whose checks of the options were good. `switches`: for each device, the name of the
/// switch that it is plugged into.
util::Result<void> serve_isolated(const ServeOptions& options, const std::vector<DeviceSpec>& specs,
                                  const std::vector<std::string>& switches,
                                  const vfio_user::SocketAccess& access);

}  // namespace softhca::cli
