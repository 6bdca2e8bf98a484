// The argument of --device: a model's name, and what distinguishes one card from another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "connectx/device.h"
#include "util/result.h"

namespace softhca::cli {

/// The models that --device takes, for help texts.
inline constexpr std::string_view kDeviceHelp =
    "connectx[,mac=XX:XX:XX:XX:XX:XX][,guid=HEX][,vectors=N][,name=TEXT]";

/// A ConnectX as `text` describes it; what it leaves out is made from `index`, the device's place
/// on the command line: MAC 02:5f:ca:00:00:<index>, a node GUID made from the MAC, name
/// connectx<index>.
util::Result<connectx::DeviceOptions> parse_device(std::string_view text, unsigned index);

}  // namespace softhca::cli
